// The page that shows a cluster over time. It asks only the daemon that served it, and inserts answers as text.

const PIXELS_A_NODE = 4;
const MOST_PIXELS_A_NODE = 28;
const PIXELS_A_NAME = 11;
const AHEAD = 1 / 8; // share of the map that shows the plan
const PLANNED = 0.4; // opacity of the plan
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600]; // seconds per column
const LONGEST = 48 * 3600;
const LEAST = 300;
const KINDS = [null, "main", "idle", "wanted", "refused", "down"];
const HIDDEN_JOB = 6;
const JOBS_FROM = 6;
const WORDS = {
  main: "main jobs", job: "malleable jobs (a colour each)", idle: "idle", wanted: "idle, but wanted back soon",
  refused: "idle, but refused by infill", down: "down", unknown: "unknown",
};
const KEPT = "infill-session";
const FIGURES = ["nodes", "node_time", "delays"];
const FIGURES_EVERY = 300; // seconds
const MOST_ROWS = 500;
const STOPPED_MS = 5000; // between two requests while the map stands still
const WIDEST = 1500; // columns

const at = (id) => document.getElementById(id);
const seconds = () => Math.floor(Date.now() / 1000) + known.skew; // by the daemon's clock

/** `view` is the part of the map that is shown, `known` the data of the page. */
const view = { span: 6 * 3600, end: null, first: 0, count: null };
const known = { status: null, map: null, nodes: 0, live: true, chosen: null, skew: 0, days: 1, drawnAt: 0 };

// Sessions and requests.

async function open() {
  const ticket = new URLSearchParams(location.hash.slice(1)).get("ticket");
  if (!ticket) return;
  history.replaceState(null, "", location.pathname + location.search);
  const answer = await fetch("v1/web/sessions", {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ ticket }),
  });
  if (answer.status === 401) throw new Refused("This link was used already, or is more than a minute old.");
  if (!answer.ok) throw new Error(await wordsOf(answer));
  sessionStorage.setItem(KEPT, (await answer.json()).secret);
}

/** Ends the session, for all tabs that have it. */
async function logout() {
  const headers = { authorization: `Bearer ${sessionStorage.getItem(KEPT)}` };
  const answer = await fetch("v1/web/logout", { method: "POST", headers });
  if (!answer.ok && answer.status !== 401) throw new Error(await wordsOf(answer));
  sessionStorage.removeItem(KEPT);
  location.reload();
}

class Refused extends Error {}

const wordsOf = async (answer) => (await answer.json().catch(() => ({}))).error ?? `the daemon answered ${answer.status}`;

/** Corrects for a wrong clock of the browser. Differences of a few seconds are ignored, so that the map does not jump. */
function heed(answer) {
  const skew = Math.round((Date.parse(answer.headers.get("date")) - Date.now()) / 1000);
  if (Math.abs(skew - known.skew) > 5) known.skew = skew;
}

/** The JSON answer to a request. With `optional`, null if this reader may not see it or it does not exist. */
async function ask(path, signal, optional = false) {
  const secret = sessionStorage.getItem(KEPT);
  const headers = secret ? { authorization: `Bearer ${secret}` } : {};
  const answer = await fetch(path, { headers, signal, cache: "no-store" });
  heed(answer);
  if (optional && [401, 404].includes(answer.status)) return null;
  at("logout").hidden = !secret || answer.status === 401;
  if (answer.status === 401) {
    sessionStorage.removeItem(KEPT);
    throw new Refused("You are not logged in, or your session has ended.");
  }
  if (!answer.ok) throw new Error(await wordsOf(answer));
  return answer.json();
}

function notice(error) {
  const words = error instanceof Refused ? `${error.message}\nFor a new link, run: infill web` : error && String(error.message ?? error);
  at("notice").hidden = !words;
  at("notice").textContent = words ?? "";
}

// The time and the nodes that are shown.

/** The time that is shown. It begins and ends at whole columns, so that columns can be kept as time goes on. */
function stretch() {
  const width = Math.min(WIDEST, room().width);
  const step = STEPS.find((secs) => view.span / secs <= width) ?? STEPS[STEPS.length - 1];
  const end = known.live ? seconds() + view.span * AHEAD : view.end;
  const to = Math.ceil(end / step) * step;
  const from = to - Math.ceil(view.span / step) * step;
  return { from, to, step, columns: (to - from) / step };
}

function room() {
  const box = at("map").getBoundingClientRect();
  return { width: Math.max(100, Math.floor(box.width)), height: Math.max(100, Math.floor(box.height)) };
}

let asking = null;

const wanted = () => ({ ...stretch(), first: view.first, count: view.count, rows: Math.floor(room().height / PIXELS_A_NODE) });

/** Loads the map. With `after`, the moment where the present data ends, loads only newer data if possible. */
async function load(after) {
  asking?.abort();
  const mine = (asking = new AbortController());
  const want = wanted();
  const old = after === undefined ? null : goesOn(known.map, want);
  const begin = old ? Math.max(want.from, Math.floor(old.seen / want.step) * want.step) : want.from;
  const query = new URLSearchParams({
    from: begin, to: want.to, first: want.first, rows: want.rows, columns: (want.to - begin) / want.step,
  });
  if (want.count !== null) query.set("count", want.count);
  if (old) query.set("nodes_since", want.from);
  if (after !== undefined) query.set("after", after);
  const map = await ask(`v1/timeline?${query}`, mine.signal);
  if (mine !== asking) return;
  if (map.shares) map.cells = Uint8Array.from(atob(map.shares), (c) => c.charCodeAt(0));
  delete map.shares;
  const whole = old ? joined(old, map, want) : map;
  if (!whole) return load();
  known.map = { ...whole, want };
  known.nodes = map.nodes;
  draw();
}

/** The map, if it only needs newer data; else null. */
function goesOn(map, want) {
  const alike = map && ["step", "first", "count", "rows"].every((name) => map.want[name] === want[name]);
  return alike && want.from >= map.from && map.seen >= want.from && map.seen < want.to ? map : null;
}

/** Joins the old and the new data. Null if their rows differ. */
function joined(old, map, want) {
  const same = old.detail === map.detail && old.nodes === map.nodes && old.count === map.count;
  if (!same) return null;
  const all = { ...map, from: want.from, columns: want.columns };
  if (map.detail === "mixtures") {
    all.cells = new Uint8Array(map.rows.length * want.columns * 3);
    const [skip, begin] = [(want.from - old.from) / want.step, (map.from - want.from) / want.step];
    for (let row = 0; row < map.rows.length; row++) {
      const kept = old.cells.subarray((row * old.columns + skip) * 3, (row * old.columns + skip + begin) * 3);
      all.cells.set(kept, row * want.columns * 3);
      all.cells.set(map.cells.subarray(row * map.columns * 3, (row + 1) * map.columns * 3), (row * want.columns + begin) * 3);
    }
    return all;
  }
  if (map.rows.some((row, i) => row.node !== old.rows[i].node)) return null;
  const [later, newer] = [want.from - old.from, map.from - want.from];
  const runs = (row, i) => {
    const kept = old.rows[i].runs.map(([from, to, code]) => [Math.max(0, from - later), Math.min(newer, to - later), code]);
    const next = row.runs.map(([from, to, code]) => [from + newer, to + newer, code]);
    const last = kept.filter(([from, to]) => from < to);
    if (last.length && next.length && last.at(-1)[1] === next[0][0] && last.at(-1)[2] === next[0][2]) next[0][0] = last.pop()[0];
    return { node: row.node, runs: [...last, ...next] };
  };
  all.rows = map.rows.map(runs);
  return all;
}

async function loadStatus() {
  known.status = await ask("v1/status?nodes=false&shared=true");
  showStanding();
  showJobs();
  await showDetail();
}

// Drawing.

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const jobColour = (job) => `hsl(${(job * 137.508) % 360} 65% 48%)`;

function colours() {
  const found = {};
  for (const name of ["paper", "ink", "line", "main", "idle", "wanted", "refused", "down", "unknown"]) found[name] = style(name);
  return found;
}

function colourOf(code, paint) {
  if (code > HIDDEN_JOB) return jobColour(code - JOBS_FROM);
  return code === HIDDEN_JOB ? "hsl(265 25% 55%)" : paint[KINDS[code]] ?? paint.unknown;
}

function draw() {
  const begun = performance.now();
  const canvas = at("map");
  fit(canvas);
  const { width, height } = room();
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  const paint = colours();
  pen.fillStyle = paint.unknown;
  pen.fillRect(0, 0, width, height);
  const map = known.map;
  if (!map) return;
  const { from, to } = map;
  const x = (secs) => ((secs - from) / (to - from)) * width;
  if (map.detail === "nodes") drawNodes(pen, map, paint, x, width, height);
  else drawMixtures(pen, map, paint, width, height);
  const now = x(map.seen);
  if (now > 0 && now < width) {
    pen.fillStyle = paint.ink;
    pen.fillRect(now, 0, 1.5, height);
  }
  drawTimes(from, to, width);
  describe(map);
  canvas.dataset.drawn = performance.now();
  canvas.dataset.view = `${map.want.first} ${map.want.count} ${map.want.step}`;
  canvas.dataset.took = performance.now() - begun;
}

/** Limits the height of the map if there are few nodes. */
function fit(canvas) {
  const rows = known.map?.detail === "nodes" ? known.map.rows.length : Infinity;
  canvas.style.maxHeight = rows < 400 ? `${Math.max(4, rows) * MOST_PIXELS_A_NODE}px` : "";
  canvas.style.minHeight = rows < 10 ? "0" : "";
}

function drawNodes(pen, map, paint, x, width, height) {
  const high = Math.min(MOST_PIXELS_A_NODE, height / Math.max(1, map.rows.length));
  map.rows.forEach((row, i) => {
    const y = i * high;
    for (const [begin, end, code] of row.runs) {
      pen.fillStyle = colourOf(code, paint);
      const [left, right, now] = [x(map.from + begin), x(map.from + end), x(map.seen)];
      if (left < now) pen.fillRect(left, y, Math.max(0.5, Math.min(now, right) - left), high - (high > 6 ? 1 : 0));
      if (right <= now) continue;
      // The plan.
      const planned = Math.max(left, now);
      pen.globalAlpha = PLANNED;
      pen.fillRect(planned, y + high * 0.25, right - planned, high * 0.5);
      pen.globalAlpha = 1;
    }
    if (high >= PIXELS_A_NAME) {
      pen.font = `${Math.min(12, high - 1)}px system-ui, sans-serif`;
      const name = row.node;
      pen.fillStyle = paint.paper;
      pen.globalAlpha = 0.75;
      pen.fillRect(0, y, pen.measureText(name).width + 6, high - 1);
      pen.globalAlpha = 1;
      pen.fillStyle = paint.ink;
      pen.fillText(name, 3, y + high - 3);
    }
  });
}

function rgb(text) {
  const probe = document.createElement("canvas").getContext("2d");
  probe.fillStyle = text;
  probe.fillRect(0, 0, 1, 1);
  return probe.getImageData(0, 0, 1, 1).data;
}

function drawMixtures(pen, map, paint, width, height) {
  const { rows, columns, cells } = map;
  const parts = ["main", "hsl(265 65% 48%)", "idle", "wanted", "refused", "down"].map((c) => rgb(paint[c] ?? c));
  const blank = rgb(paint.unknown);
  const image = new ImageData(columns, rows.length);
  const past = (map.seen - map.from) / map.want.step;
  for (let cell = 0; cell < rows.length * columns; cell++) {
    let [sum, red, green, blue] = [0, 0, 0, 0];
    for (let part = 0; part < 6; part++) {
      const byte = cells[cell * 3 + (part >> 1)];
      const share = part % 2 ? byte & 15 : byte >> 4;
      sum += share;
      red += share * parts[part][0];
      green += share * parts[part][1];
      blue += share * parts[part][2];
    }
    // Shares are rounded, so their sum may exceed the whole. The plan is pale.
    const [all, pale] = [Math.max(15, sum), cell % columns < past ? 1 : PLANNED];
    const left = all - sum * pale;
    image.data[cell * 4] = (red * pale + left * blank[0]) / all;
    image.data[cell * 4 + 1] = (green * pale + left * blank[1]) / all;
    image.data[cell * 4 + 2] = (blue * pale + left * blank[2]) / all;
    image.data[cell * 4 + 3] = 255;
  }
  const sheet = document.createElement("canvas");
  [sheet.width, sheet.height] = [columns, rows.length];
  sheet.getContext("2d").putImageData(image, 0, 0);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(sheet, 0, 0, width, height);
}

function drawTimes(from, to, width) {
  const steps = [60, 300, 900, 1800, 3600, 7200, 14400, 21600, 43200];
  const step = steps.find((s) => ((to - from) / s) * 90 <= width) ?? 86400;
  const zone = new Date().getTimezoneOffset() * 60;
  const marks = [];
  for (let t = Math.ceil((from - zone) / step) * step + zone; t < to; t += step) {
    const mark = document.createElement("span");
    const date = new Date(t * 1000);
    const midnight = date.getHours() === 0 && date.getMinutes() === 0;
    mark.textContent = midnight ? date.toLocaleDateString() : date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    mark.style.left = `${((t - from) / (to - from)) * 100}%`;
    marks.push(mark);
  }
  at("times").replaceChildren(...marks);
}

// Words and tables.

const clock = (secs) => new Date(secs * 1000).toLocaleString();
const one = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;

function wordOf(code) {
  if (code === HIDDEN_JOB) return "a malleable job";
  return code > HIDDEN_JOB ? `job ${code - JOBS_FROM}` : WORDS[KINDS[code]] ?? WORDS.unknown;
}

function fill(table, heads, rows) {
  const cells = (kind, texts) => {
    const row = document.createElement("tr");
    for (const text of texts) {
      const cell = document.createElement(kind);
      if (kind === "th") cell.scope = "col";
      if (text instanceof Node) cell.append(text);
      else cell.textContent = text ?? "";
      row.append(cell);
    }
    return row;
  };
  const key = table.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  table.tHead.replaceChildren(cells("th", heads));
  table.tBodies[0].replaceChildren(...rows.map((row) => cells("td", row)));
  if (key !== undefined) [...table.querySelectorAll("[data-key]")].find((button) => button.dataset.key === key)?.focus();
}

function chooser(kind, name, profile) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = name;
  button.dataset.key = `${kind} ${name} ${profile ? JSON.stringify(keyOf(profile)) : ""}`;
  button.addEventListener("click", () => choose({ kind, name: String(name), profile }, true));
  return button;
}

function describe(map) {
  const shown = map.count === map.nodes ? `All ${one(map.nodes, "node")}` : `${map.count} of ${one(map.nodes, "node")}, from number ${map.first + 1} on`;
  const detail = map.detail === "nodes" ? "one per row" : "several per row, with mixed colours";
  at("map-words").textContent = `${shown}, ${detail}; ${clock(map.from)} to ${clock(map.to)}; observed until ${clock(map.seen)}.`;
  if (at("map-table").closest("details").open) tabulate(map);
}

/** Fills the table that belongs to the map. */
function tabulate(map) {
  if (map.detail === "nodes") {
    const last = (r) => r.runs.filter(([begin]) => map.from + begin < map.seen).at(-1);
    const row = (r) => [chooser("node", r.node), last(r) ? wordOf(last(r)[2]) : WORDS.unknown, last(r) ? clock(map.from + last(r)[0]) : ""];
    fill(at("map-table"), ["Node", "Last used for", "Since"], map.rows.slice(0, MOST_ROWS).map(row));
    return;
  }
  const past = Math.max(1, Math.min(map.columns, Math.floor((map.seen - map.from) / map.want.step)));
  const sums = [0, 0, 0, 0, 0, 0];
  for (let cell = 0; cell < map.rows.length * map.columns; cell++) {
    if (cell % map.columns >= past) continue;
    for (let part = 0; part < 6; part++) {
      const byte = map.cells[cell * 3 + (part >> 1)];
      sums[part] += part % 2 ? byte & 15 : byte >> 4;
    }
  }
  const share = (part) => `${((sums[part] / 15 / (map.rows.length * past)) * 100).toFixed(1)} %`;
  const parts = ["main", "job", "idle", "wanted", "refused", "down"];
  fill(at("map-table"), ["Use of the nodes", "Share of node-time"], parts.map((part, i) => [WORDS[part], share(i)]));
}

function showStanding() {
  const status = known.status;
  const old = status.last_round === null || seconds() - status.last_round > 120;
  const parts = [`mode ${status.mode}`, status.control === "normal" ? null : status.control, old ? "the data is old" : null];
  const words = [...parts, ...status.problems].filter(Boolean).join("; ");
  // Screen readers speak the text again if it is set again, so it is set only if it has changed.
  if (at("standing").textContent !== words) at("standing").textContent = words;
  at("clock").textContent = status.last_round === null ? "no round yet" : `last round ${clock(status.last_round)}`;
}

function showJobs() {
  const named = (job) => {
    const button = chooser("job", job.job);
    if (job.array_task) button.textContent = job.array_task;
    return button;
  };
  const jobs = known.status.jobs;
  const gpus = jobs.some((job) => job.gpus) ? ["GPUs used"] : [];
  const rows = jobs.map((job) => [
    named(job), job.name, job.user, job.state, `${job.nodes.length} of ${job.sizes}`,
    ...gpus.map(() => (job.gpus ? `${job.gpus.used} of ${job.gpus.held}` : "")),
    job.rate === null ? "" : job.rate.toPrecision(3), job.rescales, job.why,
  ]);
  fill(at("jobs"), ["Job", "Name", "User", "State", "Nodes", ...gpus, "Samples/s", "Rescales", "Why"], rows);
}

// Figures, which the daemon draws.

/** A drawing with its numbers as a table. */
function figure(data) {
  const box = document.createElement("figure");
  if (data.svg) {
    const drawing = document.createElement("img");
    drawing.alt = data.title;
    drawing.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(data.svg)}`;
    box.append(drawing);
  } else {
    box.append(data.title);
  }
  const [more, summary, table] = ["details", "summary", "table"].map((name) => document.createElement(name));
  summary.textContent = `Show as a table: ${data.title}`;
  table.append(document.createElement("thead"), document.createElement("tbody"));
  const isTime = (head) => head === "from" || head === "at";
  const word = (value, column) => (column === 0 && isTime(data.heads[0]) ? clock(value) : String(value));
  fill(table, data.heads, data.rows.slice(-MOST_ROWS).map((row) => row.map(word)));
  const wide = document.createElement("div");
  wide.className = "wide";
  wide.append(table);
  more.append(summary, wide);
  box.append(more);
  return box;
}

async function loadFigures() {
  const days = known.days;
  const to = Math.ceil(seconds() / FIGURES_EVERY) * FIGURES_EVERY;
  const zone = -new Date().getTimezoneOffset() * 60;
  const query = new URLSearchParams({ from: to - days * 86400, to, zone });
  const figures = await Promise.all(FIGURES.map((kind) => ask(`v1/figures/${kind}?${query}`)));
  if (days !== known.days) return;
  const open = [...at("figures").querySelectorAll("details")].map((more) => more.open);
  at("figures").replaceChildren(...figures.map(figure));
  at("figures").querySelectorAll("details").forEach((more, i) => { more.open = open[i] ?? false; });
}

/** Loads the profiles, which only readers who have proved who they are may see. */
async function loadProfiles() {
  const answer = await ask("v1/profiles", undefined, true);
  at("profiles-section").hidden = !answer;
  if (!answer) return;
  const { profiles } = answer;
  const row = (p) => [
    chooser("profile", p.name, p), p.user, p.node_type, p.exec_plan, p.points.length, p.jobs, clock(p.updated_at),
  ];
  fill(at("profiles"), ["Profile", "User", "Type of nodes", "Plan", "Measured sizes", "Jobs", "Last change"], profiles.slice(0, MOST_ROWS).map(row));
}

const keyOf = ({ user, name, node_type, exec_plan, batch }) => ({ user, name, node_type, exec_plan, batch });

async function profileFigure(profile, job) {
  const here = job?.rate ? { at: job.nodes.length, rate: job.rate } : {};
  const data = await ask(`v1/profiles/figure?${new URLSearchParams({ ...keyOf(profile), ...here })}`, undefined, true);
  return data && figure(data);
}

function choose(what, focus) {
  [known.chosen, known.more, known.explained] = [what, null, null];
  showDetail(focus).catch(complain);
}

async function showDetail(focus) {
  const chosen = known.chosen;
  at("detail").hidden = !chosen;
  if (!chosen) return;
  const { kind, name } = chosen;
  at("detail-title").textContent = `${{ job: "Job", node: "Node", profile: "Profile" }[kind]} ${name}`;
  if (focus) at("detail-title").focus();
  if (known.explained !== `${kind} ${name} ${known.status?.last_round}`) await explain(chosen);
  await showMore(chosen);
}

/** Shows the text of `infill explain`, and loads it again after each round. */
async function explain(chosen) {
  const { kind, name } = chosen;
  const state = `${kind} ${name} ${known.status?.last_round}`;
  const zone = -new Date().getTimezoneOffset() * 60;
  const answer = kind === "profile" ? { lines: [] } : await ask(`v1/explain/${encodeURIComponent(name)}?zone=${zone}`, undefined, true);
  if (known.chosen !== chosen) return;
  known.explained = state;
  at("detail-words").textContent = (answer?.lines ?? ["It no longer exists, or you may not see it."]).join("\n");
}

/** Shows curve and generations. They are loaded again when the job's generation or rate has changed. */
async function showMore(chosen) {
  const job = chosen.kind === "job" ? known.status?.jobs.find((j) => String(j.job) === chosen.name) : null;
  const state = `${chosen.kind} ${chosen.name} ${JSON.stringify(chosen.profile ?? null)} ${job?.generation} ${job?.rate?.toPrecision(2)}`;
  if (known.more === state) return;
  fill(at("detail-table"), [], []);
  await showCurve(chosen, job);
  if (known.chosen !== chosen) return;
  if (chosen.kind !== "job") known.more = state;
  if (chosen.kind !== "job") return;
  const { generations } = await ask(`v1/jobs/${encodeURIComponent(chosen.name)}/generations`);
  if (known.chosen !== chosen) return;
  known.more = state;
  const rows = generations.slice(-50).reverse();
  fill(at("detail-table"), ["Generation", "Began", "Nodes", "Why"], rows.map((g) => [g.generation, clock(g.started_at), g.nodes.length, g.why]));
}

/** Shows the curve of a profile, or of a job's profile with the job's present point. */
async function showCurve(chosen, job) {
  const profile = chosen.profile ?? job?.profile;
  const drawn = profile ? await profileFigure(profile, job) : null;
  if (known.chosen === chosen) at("detail-figure").replaceChildren(...(drawn ? [drawn] : []));
}

function showLegend() {
  const paint = { ...colours(), job: "hsl(265 65% 48%)" };
  const entries = Object.entries(WORDS).map(([kind, words]) => {
    const [item, box] = [document.createElement("li"), document.createElement("i")];
    box.style.background = paint[kind];
    item.append(box, words);
    return item;
  });
  at("legend").replaceChildren(...entries);
}

// Moving about.

const clamp = (value, least, most) => Math.min(most, Math.max(least, value));

function zoomTime(factor, where = 1) {
  const { from, to } = stretch();
  const fixed = from + (to - from) * where;
  view.span = clamp((to - from) * factor, LEAST, LONGEST);
  if (where < 1 - AHEAD) stop(Math.round(fixed + view.span * (1 - where)));
  again();
}

function zoomNodes(factor, where = 0.5) {
  const count = view.count ?? known.nodes;
  const next = clamp(Math.round(count * factor), 1, Math.max(1, known.nodes));
  view.first = clamp(Math.round(view.first + (count - next) * where), 0, Math.max(0, known.nodes - next));
  view.count = next >= known.nodes ? null : next;
  again();
}

function moveNodes(share) {
  const count = view.count ?? known.nodes;
  view.first = clamp(Math.round(view.first + count * share), 0, Math.max(0, known.nodes - count));
  again();
}

function moveTime(share) {
  const { to } = stretch();
  const latest = seconds() + view.span * AHEAD;
  const next = Math.round(to + view.span * share);
  if (next >= latest) known.live = true;
  else stop(next);
  again();
}

function stop(end) {
  known.live = false;
  view.end = end;
}

let soon = null;
function again() {
  press();
  clearTimeout(soon);
  soon = setTimeout(() => {
    const mine = load().then(() => notice(null), complain);
    known.userLoad = mine;
  }, 60);
}

function complain(error) {
  if (error?.name !== "AbortError") notice(error);
}

function press() {
  at("live").setAttribute("aria-pressed", String(known.live));
  for (const button of document.querySelectorAll("[data-hours]")) {
    button.setAttribute("aria-pressed", String(view.span === button.dataset.hours * 3600));
  }
  for (const button of document.querySelectorAll("[data-days]")) {
    button.setAttribute("aria-pressed", String(known.days === Number(button.dataset.days)));
  }
}

function pointed(event) {
  const box = at("map").getBoundingClientRect();
  return { x: (event.clientX - box.left) / box.width, y: (event.clientY - box.top) / box.height, high: box.height };
}

function listen() {
  const map = at("map");
  for (const button of document.querySelectorAll("[data-hours]")) {
    button.addEventListener("click", () => { view.span = button.dataset.hours * 3600; again(); });
  }
  for (const button of document.querySelectorAll("[data-days]")) {
    button.addEventListener("click", () => {
      known.days = Number(button.dataset.days);
      press();
      loadFigures().catch(complain);
    });
  }
  at("closer").addEventListener("click", () => zoomNodes(0.5, 0));
  at("wider").addEventListener("click", () => zoomNodes(2, 0));
  at("live").addEventListener("click", () => { known.live = true; again(); });
  map.addEventListener("wheel", (event) => {
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
    if (!drag || !event.buttons) return;
    const to = pointed(event);
    if (Math.hypot(to.x - drag.x, to.y - drag.y) < 0.01) return;
    moveTime(drag.x - to.x);
    moveNodes(drag.y - to.y);
    drag = { ...to, moved: true };
  });
  map.addEventListener("pointerup", (event) => {
    if (drag && !drag.moved) pick(pointed(event));
    drag = null;
  });
  map.addEventListener("keydown", (event) => {
    const moves = {
      ArrowLeft: () => moveTime(-0.2), ArrowRight: () => moveTime(0.2), ArrowUp: () => moveNodes(-0.2), ArrowDown: () => moveNodes(0.2),
      "+": () => zoomNodes(0.5), "-": () => zoomNodes(2), "[": () => zoomTime(0.5), "]": () => zoomTime(2),
      Home: () => { known.live = true; again(); },
    };
    const move = moves[event.key];
    if (!move || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    move();
  });
  at("map-table").closest("details").addEventListener("toggle", () => known.map && describe(known.map));
  at("logout").addEventListener("click", () => logout().catch(notice));
  window.addEventListener("resize", again);
  window.addEventListener("hashchange", () => location.hash.includes("ticket=") && location.reload());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { showLegend(); draw(); });
}

/** Chooses the node or the job at a point of the map. */
function pick({ x, y, high }) {
  const map = known.map;
  if (!map) return;
  if (map.detail !== "nodes") return zoomNodes(0.25, y);
  const row = map.rows[Math.floor((y * high) / Math.min(MOST_PIXELS_A_NODE, high / Math.max(1, map.rows.length)))];
  if (!row) return;
  const secs = x * (map.to - map.from);
  const run = row.runs.find(([begin, end]) => begin <= secs && secs < end);
  const job = run && run[2] > HIDDEN_JOB && map.from + secs <= map.seen;
  choose(job ? { kind: "job", name: String(run[2] - JOBS_FROM) } : { kind: "node", name: row.node }, true);
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
      if (!known.live) await pause(STOPPED_MS);
      else if (goesOn(known.map, wanted())) await load(known.map.seen);
      else await Promise.all([load(), pause(known.map?.seen < stretch().from ? STOPPED_MS : 1000)]);
      await loadStatus();
      if (seconds() - known.drawnAt > FIGURES_EVERY) await loadSlowly();
      notice(null);
    } catch (error) {
      if (error instanceof Refused) return notice(error);
      if (error?.name !== "AbortError") {
        notice(`The daemon cannot be reached, or does not answer: ${error.message}. The page shows old data.`);
      }
      await new Promise((done) => setTimeout(done, 3000));
    }
  }
}

/** Loads figures and profiles, which change slowly. */
async function loadSlowly() {
  known.drawnAt = seconds();
  const all = await Promise.allSettled([loadFigures(), loadProfiles()]);
  const failed = all.find((one) => one.status === "rejected");
  if (!failed) return;
  // Try again in a minute.
  known.drawnAt = seconds() - FIGURES_EVERY + 60;
  throw failed.reason;
}

showLegend();
listen();
press();
try {
  await open();
  await load();
  await loadStatus();
  draw();
  follow();
} catch (error) {
  complain(error);
  if (!(error instanceof Refused)) follow();
}
