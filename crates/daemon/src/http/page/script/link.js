// What the page shows, as a link: the part after # in the address. And the search.

/** The state of the page as the fragment of a link. Only what differs from a fresh page. */
function fragment() {
  const words = new URLSearchParams();
  if (view.span !== "fit") words.set("span", Math.round(view.span));
  if (view.end !== null) words.set("end", view.end);
  if (view.first) words.set("first", view.first);
  if (view.count !== null) words.set("count", view.count);
  if (view.days !== 1) words.set("days", view.days);
  if (view.query) words.set("search", view.query);
  if (view.chosen) words.set(view.chosen.kind, view.chosen.kind === "profile" ? JSON.stringify(view.chosen.profile) : view.chosen.name);
  return words.size ? `#${words}` : "";
}

let kept = null;

/** Writes the state into the address: at once as a new entry of the history, or soon in place of the present one. */
function keepLink(isNew) {
  clearTimeout(kept);
  const write = () => {
    const next = location.pathname + location.search + fragment();
    if (next === location.pathname + location.search + location.hash) return;
    if (isNew) history.pushState(null, "", next);
    else history.replaceState(null, "", next);
  };
  if (isNew) write();
  else kept = setTimeout(write, 300);
}

/** A whole number from a link, within its limits; else `otherwise`. */
function number(text, least, most, otherwise) {
  const value = Number(text);
  return text !== null && Number.isInteger(value) && value >= least && value <= most ? value : otherwise;
}

/** Takes the state from the address. Whatever it does not say, or says wrongly, is as on a fresh page. */
function readLink() {
  const words = new URLSearchParams(location.hash.slice(1));
  view.span = number(words.get("span"), LEAST, LONGEST, "fit");
  view.end = number(words.get("end"), 0, 1e11, null);
  view.first = number(words.get("first"), 0, 1e6, 0);
  view.count = number(words.get("count"), 1, 1e6, null);
  view.days = [1, 7, 14].find((days) => String(days) === words.get("days")) ?? 1;
  view.query = (words.get("search") ?? "").slice(0, 200);
  view.chosen = null;
  for (const kind of ["job", "node"]) {
    if (words.get(kind)) view.chosen = { kind, name: words.get(kind).slice(0, 200) };
  }
  const profile = profileIn(words.get("profile"));
  if (profile) view.chosen = { kind: "profile", name: profile.name, profile };
  at("query").value = view.query;
}

function profileIn(text) {
  try {
    const key = text && keyOf(JSON.parse(text));
    return key && Object.values(key).every((value) => typeof value === "string") ? key : null;
  } catch {
    return null;
  }
}

/** Goes to the state of another entry of the history. */
function goBack() {
  if (location.hash.includes("ticket=")) return location.reload();
  readLink();
  known.detailOf = null;
  press();
  known.userLoad = Promise.all([load(), loadLanes(true)]).then(() => notice(null), complain);
  showDetail().catch(complain);
  loadFigures().catch(complain);
}

// Search.

/** Offers what can be found: jobs, users and the nodes on the map. */
function offer() {
  const jobs = known.status?.jobs ?? [];
  const nodes = known.map?.detail === "nodes" ? known.map.rows.map((row) => row.node) : [];
  const words = new Set([...jobs.flatMap((job) => [job.array_task ?? String(job.job), job.name, job.user]), ...nodes]);
  at("known").replaceChildren(...[...words].filter(Boolean).slice(0, 300).map((word) => make("option", { value: word })));
}

/** Goes to the only job that matches, or to the node of that name. */
async function find() {
  const words = view.query.trim();
  if (!words) return;
  const jobs = shownJobs();
  const exact = jobs.find((job) => String(job.job) === words || job.array_task === words);
  const job = exact ?? (jobs.length === 1 && !jobs[0].nodes.includes(words) ? jobs[0] : null);
  if (job) return choose({ kind: "job", name: String(job.job) }, true);
  const { from, to } = stretch();
  const node = await ask(`v1/nodes/${encodeURIComponent(words)}?${new URLSearchParams({ from, to })}`);
  if (isKnown(node)) return choose({ kind: "node", name: words }, true);
  const past = /^\d{1,9}$/.test(words) ? await ask(`v1/jobs/${words}/generations`) : null;
  if (past?.generations.length) return choose({ kind: "job", name: words }, true);
  if (!jobs.length) notice(`Nothing here is called “${words}”. Search for a job number, or for parts of a job's name, a user or a node.`);
  at("jobs-title").scrollIntoView({ block: "start" });
}

function listenToSearch() {
  at("query").addEventListener("focus", offer);
  at("query").addEventListener("input", () => {
    view.query = at("query").value;
    notice(null);
    showJobs();
    keepLink(false);
  });
  at("search").addEventListener("submit", (event) => {
    event.preventDefault();
    keepLink(true);
    find().catch(complain);
  });
}
