// One job, one node or one profile in detail.

const RATE_SOURCES = {
  measured: "measured", other_sizes: "other numbers of nodes", declared: "the owner's curve", other_plans: "other plans",
  other_types: "other types of nodes", other_users: "another user's program of this name", estimated: "estimates made beforehand",
};
const NODE_KINDS = { busy: "used by a main job", gap: "idle", held: "used by a malleable job", refused: "not usable by infill" };

function choose(what, focus) {
  if (what) known.opener = document.activeElement?.dataset.key;
  view.chosen = what;
  known.detailOf = null;
  keepLink(true);
  if (known.map) draw();
  showDetail(focus).catch(complain);
}

const titleOf = ({ kind, name }) => `${{ job: "Job", node: "Node", profile: "Profile" }[kind]} ${name}`;

/** Shows what is chosen. What it shows is loaded again after each round. */
async function showDetail(focus) {
  const chosen = view.chosen;
  at("detail").hidden = !chosen;
  document.title = chosen ? `${titleOf(chosen)} – infill` : "infill";
  if (!chosen) return;
  const is = known.detailOf;
  if (!is || is.kind !== chosen.kind || is.name !== chosen.name) clearDetail();
  known.detailOf = chosen;
  const job = chosen.kind === "job" ? known.status?.jobs.find((j) => String(j.job) === chosen.name) : null;
  const name = job?.name ?? laneFor(chosen)?.name;
  say(at("detail-title"), name ? `${titleOf(chosen)}: ${name}` : titleOf(chosen));
  if (focus) {
    at("detail-title").focus({ preventScroll: true });
    at("detail").scrollIntoView({ block: "nearest" });
  }
  const show = { job: () => showJob(chosen, job), node: () => showNode(chosen), profile: () => showProfile(chosen) }[chosen.kind];
  await Promise.all([
    chosen.kind === "profile" ? null : unless("explained", chosen, known.status?.last_round, () => explain(chosen)),
    unless("drawn", chosen, `${job?.generation} ${known.lanes?.loadedAt} ${spanShown()}`, show),
  ]);
}

/** Does something, unless it was done already for what is chosen in this state. */
async function unless(what, chosen, state, work) {
  if (known.done[what] === state) return;
  await work();
  if (view.chosen === chosen) known.done[what] = state;
}

function clearDetail() {
  known.done = {};
  at("detail-facts").replaceChildren();
  at("detail-figure").replaceChildren();
  fill(at("detail-plans"), [], []);
  fill(at("detail-table"), [], []);
  say(at("detail-words"), "");
  at("words-title").hidden = true;
}

/** Facts as pairs of words. Those without a value are left out. */
function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  at("detail-facts").replaceChildren(...shown.map(([name, value]) => make("div", { class: /^(Why|Short|Not used)/.test(name) ? "words" : null }, make("dt", {}, name), make("dd", {}, ...[value].flat()))));
}

/** Shows the text of `infill explain`. */
async function explain(chosen) {
  const zone = -new Date().getTimezoneOffset() * 60;
  const answer = await ask(`v1/explain/${encodeURIComponent(chosen.name)}?zone=${zone}`, undefined, true);
  if (view.chosen !== chosen) return;
  const gone = laneFor(chosen) ? "This job has ended." : "It does not exist, or you may not see it.";
  at("words-title").hidden = !answer;
  say(at("detail-words"), (answer?.lines ?? [gone]).join("\n"));
}

const laneFor = ({ kind, name }) => (kind === "job" ? known.lanes?.lanes.find((lane) => String(lane.job) === name) : undefined);

// A job.

async function showJob(chosen, job) {
  const lane = laneFor(chosen);
  facts(job ? jobFacts(job) : goneFacts(lane));
  const path = `v1/jobs/${encodeURIComponent(chosen.name)}/generations`;
  const [profile, { generations }] = await Promise.all([profileOf(job?.profile), ask(path)]);
  if (view.chosen !== chosen) return;
  showPlans(job?.plans ?? []);
  const width = pairWidth();
  const rows = lane?.spans.map(([begin, end, nodes]) => [clock(known.lanes.from + begin), clock(known.lanes.from + end), String(nodes)]);
  const sizes = figure("Sizes over time", lane?.spans.length ? sizesChart(lane, known.lanes, width) : null, ["From", "To", "Nodes"], rows?.reverse() ?? [],
    "The job has held no node in the shown time. Its sizes will be drawn here.");
  refill(at("detail-figure"), sizes, curveFigure(profile, job, width));
  const newest = generations.slice(-50).reverse();
  fill(at("detail-table"), ["No.", "Began", "Nodes", "Why this size"], newest.map((g) => [String(g.generation), clock(g.started_at), String(g.nodes.length), g.why]));
}

const pairWidth = () => {
  const all = at("detail-figure").clientWidth;
  return Math.floor(all >= 760 ? (all - 24) / 2 : all);
};

function jobFacts(job) {
  const ends = job.ends ? `in ${long(job.ends.median_secs)} (${long(job.ends.low_secs)} to ${long(job.ends.high_secs)})` : null;
  return [
    ["State", stateOf(job)], ["User", job.user], ["Nodes", job.nodes.length ? `${job.nodes.length} of ${job.sizes}` : `none of ${job.sizes}`],
    ["GPUs used", job.gpus ? `${job.gpus.used} of ${job.gpus.held}` : null],
    ["Rate", job.rate ? `${brief(job.rate)} samples/s` : null],
    ["Efficiency", job.efficiency ? `${share(job.efficiency, 1)} of proportional scaling` : null],
    ["Progress", job.step !== null && job.step !== undefined ? `step ${brief(job.step)}${job.loss === null ? "" : `, loss ${brief(job.loss)}`}` : null],
    ["Rescales", `${job.rescales}${job.restarts ? `, and ${one(job.restarts, "restart")} after failures` : ""}`],
    ["Expected end", ends], ["On", job.nodes.length ? nodeLinks(job.nodes) : null],
    ["Why these nodes", job.why], ["Short of nodes", job.shortage],
  ];
}

function goneFacts(lane) {
  return lane ? [["State", stateOf({ gone: true, ended: lane.ended_at })], ["User", lane.user]] : [];
}

/** Buttons for the first nodes. */
function nodeLinks(nodes) {
  const links = nodes.slice(0, 16).flatMap((node, i) => [i ? " " : "", chooser("node", node)]);
  return nodes.length > 16 ? [...links, ` and ${nodes.length - 16} more`] : links;
}

function showPlans(plans) {
  const rows = plans.map((plan) => [
    plan.plan, plan.runs ? "runs now" : plan.share ? `${share(plan.share, 1)} of the present rate` : "",
    plan.rate === null || plan.rate === undefined ? plan.lacks ?? "unknown" : brief(plan.rate),
    plan.low === undefined || plan.low === null ? "" : `${brief(plan.low)} to ${brief(plan.high)}`,
    RATE_SOURCES[plan.source] ?? (plan.is_measured ? "measured" : ""),
  ]);
  fill(at("detail-plans"), ["Execution plan", "Compared", "Samples/s", "90 % interval", "Known from"], rows);
}

/** The profile of this key with its curve; null if there is none, or the reader may not see it. */
async function profileOf(key) {
  if (!key) return null;
  const { user, name, node_type, exec_plan } = key;
  const answer = await ask(`v1/profiles?${new URLSearchParams({ user, name, node_type, exec_plan })}`, undefined, true);
  return answer?.profiles.find((profile) => JSON.stringify(keyOf(profile)) === JSON.stringify(keyOf(key))) ?? null;
}

function curveFigure(profile, job, width) {
  const rows = (profile?.curve ?? []).map((row) => [String(row.nodes), brief(row.rate), brief(row.low), brief(row.high), profile.points.some((p) => p.nodes === row.nodes) ? "measured" : "predicted"]);
  const empty = job || profile
    ? "Nothing is measured yet. The training rate by number of nodes will be drawn here, with the prediction for other sizes."
    : "There is no curve for a job that has ended. Its program's curve is under Profiles.";
  return figure("Training rate by number of nodes", rows.length ? curveChart(profile, job, width) : null, ["Nodes", "Samples/s", "From", "To", "Known by"], rows, empty);
}

async function showProfile(chosen) {
  at("words-title").hidden = true;
  const profile = await profileOf(chosen.profile);
  if (view.chosen !== chosen) return;
  if (!profile) return say(at("detail-words"), "It does not exist, or you may not see it.");
  facts([
    ["User", profile.user], ["Type of nodes", profile.node_type], ["Execution plan", profile.exec_plan], ["Batch", profile.batch_seen],
    ["Jobs", brief(profile.jobs)], ["Model", profile.model], ["Out of memory at", profile.unfit?.length ? profile.unfit.join(", ") : null],
    ["Last change", clock(profile.updated_at)],
  ]);
  at("detail-figure").replaceChildren(curveFigure(profile, null, pairWidth()));
}

// A node.

/** Whether there is a node of that name that this reader may see. */
const isKnown = (node) => node.now.length > 0 || node.index !== null;

async function showNode(chosen) {
  const { from, to } = stretch();
  const answer = await ask(`v1/nodes/${encodeURIComponent(chosen.name)}?${new URLSearchParams({ from, to })}`);
  if (view.chosen !== chosen) return;
  known.node = { name: chosen.name, index: answer.index };
  if (!isKnown(answer)) {
    facts([]);
    at("detail-figure").replaceChildren();
    return fill(at("detail-table"), [], []);
  }
  facts(nodeFacts(answer));
  const uses = answer.runs.length ? [usesStrip(answer, at("detail-figure").clientWidth)] : null;
  refill(at("detail-figure"), figure("Used for", uses, ["From", "To", "Used for"], usesRows(answer),
    "Nothing is recorded of this node in the shown time. What it is used for will be drawn here."));
  fill(at("detail-table"), ["Failure at", "Job", "What happened"], answer.now.flatMap((node) => node.failures).reverse()
    .map((failure) => [clock(failure.at), failure.job ? chooser("job", failure.job) : "a job", failure.what]));
}

function nodeFacts({ now, index }) {
  const pairs = now.flatMap((node) => [
    ["Now", NODE_KINDS[node.kind]], ["Malleable job", node.job ? chooser("job", node.job) : null],
    ["Main job", node.main_job ? String(node.main_job) : null], ["Not used because", node.why],
    ["Idle since", node.since ? `${clock(node.since)} (${long(seconds() - node.since)})` : null],
    ["Wanted back", node.window_end ? `${clock(node.window_end)}${node.wanted_by ? ` by ${node.wanted_by}` : ""}` : null],
    ["Counted on until", node.usable_until ? clock(node.usable_until) : null],
    ["Failures within an hour", node.failures.length ? String(node.failures.length) : "none"],
    ["State in Slurm", node.state], ["Type", node.node_type],
  ]);
  if (index !== null && known.nodes > 40) {
    const find = make("button", { type: "button", class: "link" }, "show its neighbours");
    find.addEventListener("click", () => {
      view.count = 24;
      view.first = clamp(index - 12, 0, Math.max(0, known.nodes - 24));
      again();
      at("map").scrollIntoView({ block: "center" });
    });
    pairs.push(["On the map", find]);
  }
  return pairs;
}

function usesRows({ from, runs, seen }) {
  const past = runs.filter(([begin]) => from + begin < seen);
  return past.reverse().slice(0, MOST_ROWS).map(([begin, end, code]) => [
    clock(from + begin), from + end >= seen ? "now" : clock(Math.min(seen, from + end)), code > HIDDEN_JOB ? chooser("job", code - JOBS_FROM) : wordOf(code),
  ]);
}

/** A strip of what a node was used for. */
function usesStrip(answer, width) {
  const { from, to, seen, runs } = answer;
  const [tall, top] = [34, 6];
  const paint = colours();
  const x = (secs) => (secs / (to - from)) * width;
  const svg = draft("svg", { class: "chart", width, height: tall + 28, viewBox: `0 0 ${width} ${tall + 28}`, role: "img", "aria-label": "Uses of the node over time" });
  svg.append(draft("rect", { fill: paint.unknown, x: 0, y: top, width, height: tall }));
  for (const [begin, end, code] of runs) {
    for (const [left, right, opacity] of [[begin, Math.min(end, seen - from), 1], [Math.max(begin, seen - from), end, PLANNED]]) {
      if (left >= right) continue;
      svg.append(draft("rect", { fill: colourOf(code, paint), opacity, x: x(left), y: top, width: Math.max(0.5, x(right) - x(left)), height: tall }));
      const wide = x(right) - x(left);
      if (opacity === 1 && wide > 76 && code >= HIDDEN_JOB) svg.append(draft("text", { class: "on-bar", x: x(left) + 6, y: top + 21 }, wordOf(code)));
    }
  }
  if (seen < to) svg.append(draft("line", { class: "now", x1: x(seen - from), x2: x(seen - from), y1: 0, y2: tall + top }));
  for (const [secs, words] of marksOf(from, to, width)) {
    if (x(secs - from) > 20 && x(secs - from) < width - 20) svg.append(draft("text", { x: x(secs - from), y: tall + 24, "text-anchor": "middle" }, words));
  }
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const secs = ((event.clientX - box.left) / box.width) * (to - from);
    const run = runs.find(([begin, end]) => begin <= secs && secs < end);
    tip(run ? [wordOf(run[2]), `${clock(from + run[0])} to ${clock(from + run[1])}`] : [WORDS.unknown], event.clientX, event.clientY);
  });
  svg.addEventListener("pointerleave", () => tip(null));
  return svg;
}
