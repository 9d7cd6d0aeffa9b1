// Charts over time and over sizes. Each is a drawing with a table of its numbers.

const ROUNDED = 300; // seconds to which a stretch is rounded, so that readers share answers

/** Seconds after which figures are loaded again: soon while there is little data. */
const figuresEvery = () => (known.summary?.since && seconds() - known.summary.since > 3600 ? 300 : 20);
const HIGH = 200;
const EDGE = { left: 46, right: 10, top: 22, bottom: 22 };

const FIGURES = {
  nodes: {
    title: "Nodes by use", unit: "nodes", classes: PARTS,
    empty: "Nothing is recorded in this period. Each bar here will be an hour, with the nodes of main jobs, of malleable jobs and idle ones.",
  },
  node_time: {
    title: "What the nodes of malleable jobs did", unit: "nodes", classes: ["t-steps", "t-tries", "t-changes", "t-losses"],
    empty: "No malleable job has held a node in this period. Each bar here will be an hour, with the time in training steps and in changes.",
  },
  delays: {
    title: "Waits of main jobs for malleable jobs", unit: "s",
    empty: "No main job has waited for infill in this period. Each dot here will be a main job, with the seconds that it waited.",
  },
};

async function loadFigures() {
  const days = view.days;
  const to = Math.ceil(seconds() / ROUNDED) * ROUNDED;
  const zone = -new Date().getTimezoneOffset() * 60;
  const query = new URLSearchParams({ from: to - days * 86400, to, zone });
  const answers = await Promise.all(Object.keys(FIGURES).map((kind) => ask(`v1/figures/${kind}?${query}`)));
  if (days !== view.days) return;
  known.figures = { answers, from: to - days * 86400, to, asked: seconds() };
  showFigures();
}

function showFigures() {
  if (!known.figures) return;
  const { answers, to, asked } = known.figures;
  const busy = ([, ...values]) => values.some((value) => Number(value) > 0);
  // The charts begin where the data begins.
  const begins = [answers[0].rows.find(busy), answers[1].rows.find(busy), answers[2].rows[0]].filter(Boolean).map(([begin]) => begin);
  const first = begins.length ? Math.max(known.figures.from, Math.min(...begins)) : known.figures.from;
  const from = Math.max(first, known.summary?.since > first + 3600 ? first : known.summary?.since ?? first);
  const width = figureWidth();
  const drawn = Object.entries(FIGURES).map(([kind, plan], i) => {
    const { rows: all, heads } = answers[i];
    const rows = kind === "delays" ? all.filter(([moment]) => moment >= first) : wholeBars(all, from, asked);
    const some = kind === "delays" ? rows.length > 0 : rows.some(([, , ...values]) => values.some((value) => value > 0));
    const chart = !some ? null : kind === "delays" ? dotChart(rows, Math.min(from, rows[0][0]), Math.min(to, asked), plan, width) : barChart(rows, plan, heads.slice(1), width);
    const head = kind === "delays" ? heads : ["from", "until", ...heads.slice(1)];
    return figure(plan.title, chart, head, rows, plan.empty);
  });
  refill(at("figures"), ...drawn);
}

/**
 * Rows with an end after their begin. The daemon divides the time of an hour by what has passed of it. The first hour
 * may begin before there is data, and the last one go on without: their means are of the time with data.
 */
function wholeBars(rows, from, now) {
  const step = rows.length > 1 ? rows[1][0] - rows[0][0] : 3600;
  const until = Math.min(now, known.summary?.seen ?? now);
  const shown = rows.filter(([begin]) => begin + step > from && begin < until);
  return shown.map(([begin, ...values]) => {
    const [start, end] = [Math.max(begin, from), Math.min(begin + step, until)];
    const passed = Math.min(begin + step, now) - begin;
    const held = values.reduce((sum, value) => sum + value, 0);
    // The mean of a few seconds is rough, but it never exceeds the number of nodes.
    const scale = Math.min(passed / Math.max(1, end - start), Math.max(1, known.nodes / Math.max(held, 0.01)));
    return [start, end, ...values.map((value) => value * scale)];
  });
}

/** The width of one of the charts beside each other. */
function figureWidth() {
  const all = at("figures").clientWidth;
  return Math.floor(all >= 960 ? (all - 48) / 3 : all);
}

/** A chart, or words where there is nothing to draw, with its numbers as a table. */
function figure(title, chart, heads, rows, empty) {
  const box = make("figure", {}, make("figcaption", {}, title));
  if (!chart) {
    box.append(make("p", { class: "empty" }, empty));
    return box;
  }
  const table = make("table", {}, make("thead"), make("tbody"));
  const isTime = (column) => ["from", "until", "at"].includes(heads[column]);
  const word = (value, column) => (isTime(column) && typeof value === "number" ? clock(value) : typeof value === "number" ? brief(value) : String(value));
  fill(table, heads, rows.slice(-MOST_ROWS).map((row) => row.map(word)));
  const summary = make("summary", {}, "Show as a table", make("span", { class: "unseen" }, `: ${title}`));
  box.append(...chart, make("details", {}, summary, make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": title }, table)));
  return box;
}

/** A round number that is at least this. */
function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((n) => n * power).find((n) => n >= value * 0.999);
}

/** Axes with their marks. `x` and `y` map values to pixels. `down`: marks of the axis below. */
function frame(title, width, most, measure, down) {
  const [inner, tall] = [width - EDGE.left - EDGE.right, HIGH - EDGE.top - EDGE.bottom];
  const y = (value) => EDGE.top + tall * (1 - value / most);
  const svg = draft("svg", { class: "chart", width, height: HIGH, viewBox: `0 0 ${width} ${HIGH}`, role: "img", "aria-label": title });
  for (const value of [0, most / 2, most]) {
    svg.append(draft("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: y(value), y2: y(value) }));
    if (value === most / 2 && measure === "nodes" && !Number.isInteger(value) && most < 4) continue;
    svg.append(draft("text", { x: EDGE.left - 6, y: y(value) + 4, "text-anchor": "end" }, brief(value)));
  }
  svg.append(draft("text", { x: 0, y: 11 }, measure));
  for (const [place, words] of down(inner)) {
    svg.append(draft("text", { x: clamp(EDGE.left + place, EDGE.left + 14, width - 20), y: HIGH - 5, "text-anchor": "middle" }, words));
  }
  return { svg, y, x: (part) => EDGE.left + inner * part, inner };
}

const timeMarks = (from, to) => (inner) => {
  const marks = marksOf(from, to, inner * 1.2);
  return marks.map(([secs, words]) => [((secs - from) / (to - from)) * inner, words]).filter(([place]) => place < inner - 12);
};

/** Stacked bars, one an interval. */
function barChart(rows, plan, names, width) {
  const [begin, to] = [rows[0][0], rows.at(-1)[1]];
  const most = ceiling(Math.max(...rows.map(([, , ...values]) => values.reduce((sum, value) => sum + value, 0))));
  const { svg, x, y } = frame(plan.title, width, most, plan.unit, timeMarks(begin, to));
  for (const [start, end, ...values] of rows) {
    const [left, right] = [x((start - begin) / (to - begin)), x((end - begin) / (to - begin))];
    let sum = 0;
    values.forEach((value, i) => {
      if (value <= 0) return;
      const wide = Math.max(0.5, right - left - (right - left > 6 ? 1 : 0));
      svg.append(draft("rect", { class: plan.classes[i], x: left, y: y(sum + value), width: wide, height: y(sum) - y(sum + value) }));
      sum += value;
    });
  }
  point(svg, (part) => {
    const secs = begin + part * (to - begin);
    const row = rows.find(([start, end]) => start <= secs && secs < end);
    const lines = names.map((name, i) => (row?.[i + 2] > 0 ? `${name}: ${brief(row[i + 2])} nodes` : null));
    return row && [`${clock(row[0])} to ${clock(row[1])}`, ...lines.filter(Boolean)];
  });
  const used = names.map((name, i) => [name, plan.classes[i]]).filter((_, i) => rows.some((row) => row[i + 2] > 0));
  return [svg, keysOf(used)];
}

const keysOf = (entries) => make("ul", { class: "legend" }, ...entries.map(([name, kind]) => make("li", {}, make("i", { class: kind }), name)));

/** A dot a main job. */
function dotChart(rows, from, to, plan, width) {
  const most = ceiling(Math.max(1, ...rows.map(([, secs]) => secs)));
  const { svg, x, y } = frame(plan.title, width, most, plan.unit, timeMarks(from, to));
  for (const [moment, secs, cause] of rows) {
    const kind = cause === "a planned start" ? "planned" : "preempted";
    svg.append(draft("circle", { class: `dot ${kind}`, cx: x((moment - from) / (to - from)), cy: y(secs), r: 3.5 }));
  }
  point(svg, (part) => {
    const secs = from + part * (to - from);
    const near = rows.reduce((best, row) => (Math.abs(row[0] - secs) < Math.abs(best[0] - secs) ? row : best));
    return [clock(near[0]), `waited ${wait(near[1])}, for ${near[2]}`];
  });
  return [svg, keysOf([["planned by Slurm", "dot planned"], ["preemption", "dot preempted"]])];
}

/** Shows a tip where the pointer is. `lines`: the words for a place from 0 to 1. */
function point(svg, lines) {
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const part = (event.clientX - box.left - EDGE.left) / (box.width - EDGE.left - EDGE.right);
    tip(part < 0 || part > 1 ? null : lines(part), event.clientX, event.clientY);
  });
  svg.addEventListener("pointerleave", () => tip(null));
}

/** Rates by number of nodes: measured points, the fitted curve with its 90 % interval, and a job's present point. */
function curveChart(profile, job, width) {
  const { points, curve } = profile;
  const here = job?.rate && job.nodes.length ? [job.nodes.length, job.rate] : null;
  const widest = Math.max(...curve.map((row) => row.nodes), ...points.map((p) => p.nodes), here?.[0] ?? 1);
  const top = Math.max(...curve.map((row) => Math.min(row.high, row.rate * 2)), ...points.map((p) => p.rate), here?.[1] ?? 0);
  const most = ceiling(top);
  const step = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024].find((n) => (widest / n) * 40 <= width) ?? 4096;
  const marks = (inner) => Array.from({ length: Math.floor(widest / step) }, (_, i) => [(((i + 1) * step) / widest) * inner, String((i + 1) * step)]);
  const { svg, x, y } = frame(`Training rate of ${profile.name} by number of nodes`, width, most, "samples/s by nodes", marks);
  const place = (nodes, rate) => `${x(nodes / widest).toFixed(1)},${y(Math.min(rate, most)).toFixed(1)}`;
  const band = [...curve.map((row) => place(row.nodes, row.high)), ...[...curve].reverse().map((row) => place(row.nodes, row.low))];
  svg.append(draft("polygon", { class: "band", points: band.join(" ") }));
  svg.append(draft("polyline", { class: "curve", points: curve.map((row) => place(row.nodes, row.rate)).join(" ") }));
  for (const p of points) {
    const reach = 1.645 * p.error * p.rate;
    svg.append(draft("line", { class: "error", x1: x(p.nodes / widest), x2: x(p.nodes / widest), y1: y(Math.min(most, p.rate + reach)), y2: y(Math.max(0, p.rate - reach)) }));
    svg.append(draft("circle", { class: "measured", cx: x(p.nodes / widest), cy: y(p.rate), r: 4 }));
  }
  if (here) svg.append(draft("circle", { class: "here", cx: x(here[0] / widest), cy: y(Math.min(most, here[1])), r: 7 }));
  point(svg, (part) => {
    const row = curve.reduce((best, row) => (Math.abs(row.nodes / widest - part) < Math.abs(best.nodes / widest - part) ? row : best), curve[0]);
    const measured = points.find((p) => p.nodes === row.nodes);
    const found = measured ? `measured: ${brief(measured.rate)} samples/s in ${long(measured.secs)}` : "not measured";
    return [one(row.nodes, "node"), `predicted: ${brief(row.rate)} samples/s (${brief(row.low)} to ${brief(row.high)})`, found];
  });
  const keys = [["measured", "measured"], ["predicted", "curve"], ["90 % interval", "band"], ...(here ? [["now", "here"]] : [])];
  return [svg, keysOf(keys)];
}

/** The sizes of one job over time. */
function sizesChart(lane, lanes, width) {
  const { from, to, seen } = lanes;
  const most = ceiling(Math.max(2, ...lane.spans.map(([, , nodes]) => nodes)));
  const { svg, x, y } = frame(`Sizes of job ${lane.job} over time`, width, most, "nodes", timeMarks(from, to));
  for (const [begin, end, nodes] of lane.spans) {
    const now = seen - from;
    const bars = [[begin, Math.min(end, now), 1], [Math.max(begin, now), end, PLANNED]];
    for (const [left, right, opacity] of bars) {
      if (left >= right) continue;
      svg.append(draft("rect", { fill: jobColour(lane.job), opacity, x: x(left / (to - from)), y: y(nodes), width: Math.max(0.5, x(right / (to - from)) - x(left / (to - from))), height: y(0) - y(nodes) }));
    }
  }
  for (const change of lane.changes) {
    const left = x((change.at - from) / (to - from));
    svg.append(draft("line", { class: "change", x1: left, x2: left, y1: EDGE.top, y2: y(0) }));
  }
  if (seen < to) svg.append(draft("line", { class: "now", x1: x((seen - from) / (to - from)), x2: x((seen - from) / (to - from)), y1: EDGE.top, y2: y(0) }));
  point(svg, (part) => laneLines(lane, lanes, from + part * (to - from)));
  return [svg];
}
