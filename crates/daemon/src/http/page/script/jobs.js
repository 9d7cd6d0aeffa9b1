// The table of malleable jobs, with a lane each: its sizes over time, and why it changed.

const LANES_EVERY = 10; // seconds
const FIRST_JOBS = 25;

async function loadStatus() {
  known.status = await ask("v1/status?nodes=false&shared=true");
  showStanding();
  showJobs();
}

/** Loads the lanes of the shown time. Without `now`, not more often than every few seconds. */
async function loadLanes(now = false) {
  const { from, to } = stretch();
  if (!now && known.lanes && seconds() - known.lanes.loadedAt < LANES_EVERY) return;
  const lanes = await ask(`v1/lanes?${new URLSearchParams({ from, to })}`);
  known.lanes = { ...lanes, loadedAt: seconds() };
  showJobs();
}

/** Whether a job is one that the reader searches for. */
function isSought(job) {
  const words = view.query.trim().toLowerCase();
  if (!words) return true;
  const texts = [String(job.job), job.array_task ?? "", job.name, job.user, ...(job.nodes ?? [])];
  return texts.some((text) => text.toLowerCase().includes(words));
}

/** The present jobs, those with nodes first, and the jobs that ended in the shown time. */
function shownJobs() {
  const present = [...(known.status?.jobs ?? [])].sort((a, b) => (b.nodes.length > 0) - (a.nodes.length > 0) || a.job - b.job);
  const here = new Set(present.map((job) => job.job));
  const gone = (known.lanes?.lanes ?? []).filter((lane) => !here.has(lane.job)).map((lane) => ({
    job: lane.job, name: lane.name, user: lane.user, nodes: [], gone: true, ended: lane.ended_at,
  }));
  return [...present, ...gone].filter(isSought);
}

function showJobs() {
  if (!known.status) return;
  tip(null);
  const jobs = shownJobs();
  const gpus = jobs.some((job) => job.gpus) ? ["GPUs used"] : [];
  const lanes = new Map((known.lanes?.lanes ?? []).map((lane) => [lane.job, lane]));
  const label = (name, ...children) => cell({ "data-label": name }, ...children);
  const rows = jobs.slice(0, known.allJobs ? MOST_ROWS : FIRST_JOBS).map((job) => [
    label("Job", jobButton(job)), label("Name", job.name), label("User", job.user), label("State", stateOf(job)),
    label("Nodes", job.gone ? "" : `${job.nodes.length} of ${job.sizes}`),
    cell({ class: "in-lane" }, laneOf(job, lanes.get(job.job))),
    ...gpus.map(() => label("GPUs used", job.gpus ? `${job.gpus.used} of ${job.gpus.held}` : "")),
    label("Samples/s", job.rate ? brief(job.rate) : ""), label("Rescales", job.gone ? "" : String(job.rescales)),
    cell({ "data-label": "Why", class: "why" }, whyOf(job, lanes.get(job.job))),
  ]);
  fill(at("jobs"), ["Job", "Name", "User", "State", "Nodes", laneHead(), ...gpus, "Samples/s", "Rescales", "Why"], rows);
  at("jobs-empty").hidden = rows.length > 0;
  say(at("jobs-empty"), view.query ? `No malleable job here matches “${view.query}”.` : "No malleable job has run in this time. Each will have a line here, with its sizes over time and why they changed.");
  at("more-jobs").hidden = known.allJobs || jobs.length <= FIRST_JOBS;
  say(at("more-jobs"), `Show ${jobs.length > MOST_ROWS ? `the first ${MOST_ROWS}` : "all"} of ${one(jobs.length, "job")}`);
  showCounts(jobs.length);
  if (at("changes").open) tabulateChanges();
}

function showCounts(count) {
  const hidden = Math.max(known.status.hidden?.jobs ?? 0, known.lanes?.hidden ?? 0);
  const parts = [
    view.query && count ? `${one(count, "job")} ${count === 1 ? "matches" : "match"} “${view.query}”` : null,
    count > MOST_ROWS && known.allJobs ? `the first ${MOST_ROWS} of ${brief(count)} are shown: search for others` : null,
    hidden ? `${one(hidden, "job")} of other users are not shown to you` : null,
  ];
  say(at("jobs-words"), parts.filter(Boolean).join("; "));
}

function jobButton(job) {
  const button = chooser("job", job.job);
  if (job.array_task) button.textContent = job.array_task;
  return button;
}

/** The state of a job, with a colour for those that train, change and wait. */
function stateOf(job) {
  if (job.gone) return make("span", { class: "chip" }, job.ended ? `ended ${clock(job.ended)}` : "ended");
  const kinds = { running: "run", rescaling: "change", regrouping: "change", launching: "change", starting: "change", parking: "change", ending: "change" };
  return make("span", { class: `chip ${kinds[job.state] ?? "wait"}` }, job.state);
}

function whyOf(job, lane) {
  if (job.gone) return lane?.changes.at(-1)?.why ?? "";
  return [job.shortage, job.why].filter(Boolean).join("; ");
}

/** The head of the column of lanes: the times at their ends. */
function laneHead() {
  const lanes = known.lanes;
  if (!lanes) return "Sizes over time";
  return make("span", { class: "lane-head" }, make("span", {}, hourOf(new Date(lanes.from * 1000))), "Sizes over time", make("span", {}, hourOf(new Date(lanes.to * 1000))));
}

// Lanes.

/** The size of a lane at a moment, with the reason, in lines. */
function laneLines(lane, lanes, secs) {
  const span = lane.spans.find(([begin, end]) => lanes.from + begin <= secs && secs < lanes.from + end);
  const change = lane.changes.filter((change) => change.at <= secs).at(-1);
  if (!span) return [`no node at ${clock(secs)}`];
  const [begin, end, nodes] = span;
  const planned = secs > lanes.seen ? "planned: " : "";
  const until = lanes.from + end >= lanes.seen && !planned ? "until now" : `to ${clock(lanes.from + end)}`;
  return [`${planned}${one(nodes, "node")}`, `${clock(lanes.from + begin)} ${until}`, ...(change && !planned ? [change.why] : [])];
}

function laneOf(job, lane) {
  const lanes = known.lanes;
  // The daemon sends a limited number of lanes.
  if (!lane && lanes?.omitted) return make("span", { class: "quiet" }, "not shown: too many jobs");
  if (!lanes || !lane?.spans.length) return make("span", { class: "quiet" }, lane?.changes.length ? "shares nodes with main jobs" : "no node in this time");
  const most = Math.max(...lane.spans.map(([, , nodes]) => nodes));
  const length = lanes.to - lanes.from;
  const svg = draft("svg", { viewBox: "0 0 1000 30", preserveAspectRatio: "none", "shape-rendering": "crispEdges", "aria-hidden": "true" });
  const now = lanes.seen - lanes.from;
  for (const [begin, end, nodes] of lane.spans) {
    const tall = 4 + (nodes / most) * 26;
    for (const [left, right, opacity] of [[begin, Math.min(end, now), 1], [Math.max(begin, now), end, PLANNED]]) {
      if (left >= right) continue;
      svg.append(draft("rect", { fill: jobColour(lane.job), opacity, x: (left / length) * 1000, width: Math.max(1, ((right - left) / length) * 1000), y: 30 - tall, height: tall }));
    }
  }
  if (now < length) svg.append(draft("rect", { class: "now", x: (now / length) * 1000, y: 0, width: 2, height: 30 }));
  const box = make("div", { class: "lane", tabindex: "0", role: "img", "aria-label": laneWords(lane, lanes) }, svg, ...laneNumbers(lane, lanes));
  box.dataset.key = `lane ${lane.job}`;
  listenToLane(box, lane, lanes);
  return box;
}

/** The numbers of nodes, in the stretches that are long enough for them. */
function laneNumbers(lane, lanes) {
  const length = lanes.to - lanes.from;
  return lane.spans.filter(([begin, end]) => (Math.min(end, lanes.seen - lanes.from) - begin) / length > 0.07).map(([begin, , nodes]) => {
    const number = make("span", { class: "number", "aria-hidden": "true" }, String(nodes));
    number.style.left = `calc(${(begin / length) * 100}% + 4px)`;
    return number;
  });
}

function laneWords(lane, lanes) {
  const last = lane.spans.slice(-5).map(([begin, , nodes]) => `${one(nodes, "node")} from ${clock(lanes.from + begin)}`);
  const more = lane.spans.length > 5 ? `${lane.spans.length - 5} earlier sizes, then ` : "";
  return `Sizes of job ${lane.job}: ${more}${last.join(", ")}. Left and right step through them.`;
}

function listenToLane(box, lane, lanes) {
  let step = lane.spans.length - 1;
  const show = () => {
    const [begin, end] = lane.spans[step];
    const middle = lanes.from + (begin + Math.min(end, Math.max(begin + 1, lanes.seen - lanes.from))) / 2;
    const place = box.getBoundingClientRect();
    tip(laneLines(lane, lanes, middle), place.left + ((middle - lanes.from) / (lanes.to - lanes.from)) * place.width, place.bottom);
  };
  box.addEventListener("focus", show);
  box.addEventListener("blur", () => tip(null));
  box.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    step = clamp(step + by, 0, lane.spans.length - 1);
    show();
  });
  box.addEventListener("pointermove", (event) => {
    const place = box.getBoundingClientRect();
    tip(laneLines(lane, lanes, lanes.from + ((event.clientX - place.left) / place.width) * (lanes.to - lanes.from)), event.clientX, event.clientY);
  });
  box.addEventListener("pointerleave", () => tip(null));
}

/** All changes of size in the shown time, the newest first. */
function tabulateChanges() {
  const sought = new Set(shownJobs().map((job) => job.job));
  const lanes = (known.lanes?.lanes ?? []).filter((lane) => sought.has(lane.job));
  const all = lanes.flatMap((lane) => lane.changes.map((change) => ({ ...change, job: lane.job })));
  const newest = all.sort((a, b) => b.at - a.at).slice(0, MOST_ROWS);
  fill(at("changes-table"), ["Time", "Job", "Nodes", "Why"], newest.map((change) => [clock(change.at), chooser("job", change.job), String(change.nodes), change.why]));
}

// Profiles.

const keyOf = ({ user, name, node_type, exec_plan, batch }) => ({ user, name, node_type, exec_plan, batch });

/** Loads the profiles, which only readers who have proved who they are may see. */
async function loadProfiles() {
  const answer = await ask("v1/profiles", undefined, true);
  at("profiles-section").hidden = !answer;
  if (!answer) return;
  known.profiles = answer.profiles;
  const row = (p) => [
    chooser("profile", p.name, p), p.user, p.node_type, p.exec_plan, brief(p.points.length), brief(p.jobs), clock(p.updated_at),
  ];
  fill(at("profiles"), ["Profile", "User", "Type of nodes", "Plan", "Measured sizes", "Jobs", "Last change"], answer.profiles.slice(0, MOST_ROWS).map(row));
  at("profiles-empty").hidden = answer.profiles.length > 0;
  say(at("profiles-empty"), "No program has been measured yet. Each will have a line here, with how fast it trains on how many nodes.");
}
