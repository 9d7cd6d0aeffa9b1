// The head of the page: the daemon's state, problems, and the day at a glance.

const OLD_AFTER = 120; // seconds after which the data is old

async function loadSummary() {
  const midnight = new Date(seconds() * 1000);
  midnight.setHours(0, 0, 0, 0);
  known.summary = await ask(`v1/summary?${new URLSearchParams({ day: midnight.getTime() / 1000 })}`);
  showTiles();
}

function showStanding() {
  const status = known.status;
  const parts = [`mode ${status.mode}`, status.control === "normal" ? null : status.control].filter(Boolean);
  at("bar").dataset.mode = status.control === "normal" ? status.mode : status.control;
  // Screen readers speak the text again if it is set again, so it is set only if it has changed.
  say(at("standing"), parts.join("; "));
  const slurm = status.slurm ? `, Slurm ${status.slurm}` : "";
  say(at("versions"), `infill ${status.version}${slurm}; the daemon runs since ${clock(status.started_at)}`);
  say(at("clock"), status.last_round === null ? "no round yet" : `last round ${clock(status.last_round)}`);
  showProblems();
}

/** The daemon's problems, and what the page finds out by itself. */
function problems() {
  const status = known.status;
  if (!status) return [];
  const found = [...status.problems];
  if (status.last_round !== null && seconds() - status.last_round > OLD_AFTER) {
    found.push(`The data is old: the last round was ${long(seconds() - status.last_round)} ago.`);
  }
  const delays = known.summary?.delays;
  if (delays && delays.max_secs > delays.limit_secs) {
    found.push(`A main job waited ${wait(delays.max_secs)} for malleable jobs today. The limit is ${wait(delays.limit_secs)} (safety.max_delay_secs).`);
  }
  return found.map((problem) => problem.charAt(0).toUpperCase() + problem.slice(1));
}

function showProblems() {
  const found = problems();
  at("problems").hidden = found.length === 0;
  say(at("problems-title"), one(found.length, "problem"));
  const list = at("problems").querySelector("ul");
  if (list.dataset.said === found.join("\n")) return;
  list.dataset.said = found.join("\n");
  list.replaceChildren(...found.map((problem) => make("li", {}, problem)));
}

/** A tile: a title, a large figure, and what it means. */
function tile(title, figure, words, ...more) {
  return make("div", { class: "tile" },
    make("h2", {}, title),
    figure !== null ? make("p", { class: "figure" }, ...[figure].flat()) : null,
    make("p", { class: figure !== null ? "quiet" : "quiet alone" }, words),
    ...more);
}

function showTiles() {
  const { summary, status } = known;
  if (!summary || !status) return;
  const tiles = [nodesTile(summary), harvestTile(summary), delaysTile(summary), jobsTile(summary, status), problemsTile(status)];
  at("tiles").replaceChildren(...tiles);
  showProblems();
}

function nodesTile({ nodes, seen }) {
  const parts = [
    ["main", "main jobs", nodes.main], ["job", "malleable", nodes.malleable],
    ["idle", "idle", nodes.idle + nodes.wanted], ["down", "unusable", nodes.refused + nodes.down],
  ];
  const all = parts.reduce((sum, [, , count]) => sum + count, 0);
  if (seen === null) return tile("Nodes now", null, "The daemon has not read Slurm yet.");
  if (!all) return tile("Nodes now", null, "Slurm shows no node in the malleable partition.");
  const bar = make("div", { class: "share", "aria-hidden": "true" });
  for (const [kind, , count] of parts) {
    if (!count) continue;
    const piece = make("i", { class: kind });
    piece.style.flexGrow = count;
    bar.append(piece);
  }
  const keys = parts.map(([kind, word, count]) => make("li", {}, make("i", { class: kind }), make("b", {}, brief(count)), ` ${word}`));
  const shown = make("div", { class: "tile" }, make("h2", {}, "Nodes now"), make("p", { class: "figure" }, brief(all)), bar,
    make("ul", { class: "keys" }, ...keys));
  return shown;
}

function harvestTile({ uses, spent }) {
  const left = uses.malleable_secs + uses.idle_secs + uses.wanted_secs + uses.refused_secs;
  if (!uses.hours || left + uses.main_secs + uses.down_secs <= 0) return tile("Harvested today", null, "Nothing is recorded yet today.");
  if (left <= 0) return tile("Harvested today", null, "Main jobs have left no node idle today.");
  const held = spent.useful_secs + spent.probing_secs + spent.rescale_secs + spent.preempted_secs;
  const hours = (secs) => brief(secs / 3600);
  const words = `${hours(uses.malleable_secs)} of ${hours(left)} idle node-hours`;
  const useful = held > 0 ? `${share(spent.useful_secs + spent.probing_secs, held)} of it in training steps` : "no training step yet";
  return tile("Harvested today", share(uses.malleable_secs, left), words, make("p", { class: "quiet" }, useful));
}

function delaysTile({ delays }) {
  if (!delays) return tile("Main-job delays today", null, "No main job has waited for infill today.");
  const late = delays.max_secs > delays.limit_secs;
  const over = delays.delayed ? `${brief(delays.delayed)} waited over ${unit(1, "s")}` : `none waited over ${unit(1, "s")}`;
  const words = `longest wait of ${one(delays.jobs, "main job")}; p99 ${wait(delays.p99_secs)}`;
  const shown = tile("Main-job delays today", wait(delays.max_secs), words, make("p", { class: "quiet" }, over));
  shown.classList.toggle("bad", late);
  return shown;
}

function jobsTile({ rescales }, { jobs, hidden }) {
  const holding = jobs.filter((job) => job.nodes.length).length;
  const waiting = jobs.length - holding;
  const others = hidden?.jobs ? `, ${brief(hidden.jobs)} of other users` : "";
  const words = jobs.length ? `${one(holding, "job")} on nodes, ${brief(waiting)} waiting${others}` : `no malleable job now${others}`;
  return tile("Rescales today", brief(rescales), words);
}

function problemsTile(status) {
  const count = problems().length;
  const last = status.last_round === null ? "no round yet" : `the last round was ${long(seconds() - status.last_round)} ago`;
  const shown = tile("Problems", count ? brief(count) : "None", count ? "listed above" : last);
  shown.classList.add(count ? "bad" : "good");
  return shown;
}
