// Buttons and keys, following the present, and the start.

const STOPPED_MS = 5000; // between two requests while the map stands still

function press() {
  at("live").setAttribute("aria-pressed", String(view.end === null));
  for (const button of document.querySelectorAll("[data-span]")) {
    button.setAttribute("aria-pressed", String(String(view.span) === button.dataset.span));
  }
  for (const button of document.querySelectorAll("[data-days]")) {
    button.setAttribute("aria-pressed", String(view.days === Number(button.dataset.days)));
  }
}

function toNow() {
  view.end = null;
  again(true);
}

function listenToTools() {
  for (const button of document.querySelectorAll("[data-span]")) {
    button.addEventListener("click", () => {
      view.span = button.dataset.span === "fit" ? "fit" : Number(button.dataset.span);
      view.end = null;
      again(true);
    });
  }
  for (const button of document.querySelectorAll("[data-days]")) {
    button.addEventListener("click", () => {
      view.days = Number(button.dataset.days);
      press();
      keepLink(false);
      loadFigures().catch(complain);
    });
  }
  at("closer").addEventListener("click", () => zoomNodes(0.5, 0));
  at("wider").addEventListener("click", () => zoomNodes(2, 0));
  at("live").addEventListener("click", toNow);
  at("close").addEventListener("click", () => {
    choose(null);
    // Back to where it was opened.
    const opener = [...document.querySelectorAll("[data-key]")].find((found) => found.dataset.key === known.opener) ?? at("map");
    opener.focus();
  });
  at("more-jobs").addEventListener("click", () => {
    known.allJobs = true;
    showJobs();
    document.querySelector("#jobs tbody button")?.focus();
  });
  at("logout").addEventListener("click", () => logout().catch(notice));
  at("map-table").closest("details").addEventListener("toggle", () => known.map && describe(known.map));
  at("changes").addEventListener("toggle", tabulateChanges);
}

function listenToMap() {
  const map = at("map");
  map.addEventListener("wheel", (event) => {
    // Without a key the wheel scrolls the page.
    if (!event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    const { x, y } = pointed(event);
    // Some browsers turn a wheel with shift into a horizontal one.
    const factor = Math.exp(clamp(event.deltaY || event.deltaX, -200, 200) / 400);
    if (event.shiftKey) zoomTime(factor, x);
    else zoomNodes(factor, y);
  }, { passive: false });
  let drag = null;
  map.addEventListener("pointerdown", (event) => { drag = { ...pointed(event), moved: false }; });
  map.addEventListener("pointermove", (event) => {
    const to = pointed(event);
    if (!drag || !event.buttons) return tip(linesAt(to), event.clientX, event.clientY);
    tip(null);
    if (Math.hypot(to.x - drag.x, to.y - drag.y) < 0.01) return;
    moveTime(drag.x - to.x);
    moveNodes(drag.y - to.y);
    drag = { ...to, moved: true };
  });
  map.addEventListener("pointerup", (event) => {
    if (drag && !drag.moved) pick(pointed(event));
    drag = null;
  });
  map.addEventListener("pointerleave", () => tip(null));
  at("uses").addEventListener("pointermove", (event) => {
    const { x } = pointed(event);
    const secs = known.map && x * (known.map.to - known.map.from);
    tip(known.map && x >= 0 && x <= 1 ? countLines(known.map, secs, "Nodes") : null, event.clientX, event.clientY);
  });
  at("uses").addEventListener("pointerleave", () => tip(null));
  map.addEventListener("keydown", (event) => {
    const moves = {
      ArrowLeft: () => moveTime(-0.2), ArrowRight: () => moveTime(0.2), ArrowUp: () => moveNodes(-0.2), ArrowDown: () => moveNodes(0.2),
      "+": () => zoomNodes(0.5), "-": () => zoomNodes(2), "[": () => zoomTime(0.5), "]": () => zoomTime(2), Home: toNow,
    };
    const move = moves[event.key];
    if (!move || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    move();
  });
}

function listenToWindow() {
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) {
      // Phones change the height as their bars come and go. That need not change the map.
      if (known.drawnSize !== `${at("map").clientWidth} ${at("map").clientHeight}`) again();
      return;
    }
    width = window.innerWidth;
    again(true);
    showFigures();
    known.done = {};
    showDetail().catch(complain);
  });
  window.addEventListener("popstate", goBack);
  window.addEventListener("keydown", (event) => {
    if (event.key === "Escape") tip(null);
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    at("query").focus();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    draw();
    showJobs();
    known.done = {};
    showDetail().catch(complain);
  });
}

// Following the present.

const pause = (millis) => new Promise((done) => setTimeout(done, millis));

/** Waits while the page is hidden. */
function awake() {
  if (!document.hidden) return null;
  return new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
}

async function follow() {
  for (;;) {
    try {
      await awake();
      await known.userLoad;
      if (view.end !== null) await pause(STOPPED_MS);
      else if (goesOn(known.map, wanted())) await load(known.map.seen);
      else await Promise.all([load(), pause(known.map?.seen < stretch().from ? STOPPED_MS : 1000)]);
      await loadPresent();
      notice(null);
    } catch (error) {
      if (error instanceof Refused) return notice(error);
      if (error?.name !== "AbortError") {
        notice(`The daemon cannot be reached, or does not answer: ${error.message}. The page shows old data.`);
      }
      await pause(3000);
    }
  }
}

/** Loads what changes with each round. */
async function loadPresent() {
  await loadStatus();
  await Promise.all([loadSummary(), loadLanes()]);
  await showDetail();
  if (seconds() - known.drawnAt > figuresEvery()) await loadSlowly();
}

/** Loads figures and profiles, which change slowly. */
async function loadSlowly() {
  known.drawnAt = seconds();
  const all = await Promise.allSettled([loadFigures(), loadProfiles()]);
  const failed = all.find((one) => one.status === "rejected");
  if (!failed) return;
  // Try again in a minute.
  known.drawnAt = seconds() - figuresEvery() + 60;
  throw failed.reason;
}

showLegend();
listenToTools();
listenToSearch();
listenToMap();
listenToWindow();
try {
  await open();
  readLink();
  press();
  // The status tells the daemon's clock, and the summary since when there is data.
  await loadStatus();
  await loadSummary();
  await load();
  await loadPresent();
  follow();
} catch (error) {
  complain(error);
  if (!(error instanceof Refused)) follow();
}
