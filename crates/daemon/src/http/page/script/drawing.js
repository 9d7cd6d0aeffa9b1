// Drawing the map, and the numbers of nodes by use above it.

const MOST_PIXELS_A_NODE = 28;
const PIXELS_A_NAME = 11;
const PLANNED = 0.4; // opacity of the plan

/** Pixels left of the map, for names. */
const gutter = () => known.gutter ?? 56;

function draw() {
  const begun = performance.now();
  const canvas = at("map");
  const map = known.map;
  const empty = map && map.nodes === 0;
  at("map-section").classList.toggle("without-nodes", Boolean(empty));
  at("map-empty").hidden = !empty;
  if (empty) say(at("map-empty"), emptyWords());
  fit(canvas);
  const paint = colours();
  const pen = sheet(canvas);
  if (!map || empty) return;
  known.gutter = gutterFor(map, pen, canvas.clientWidth);
  const { width, height } = room();
  const x = (secs) => gutter() + ((secs - map.from) / (map.to - map.from)) * width;
  pen.fillStyle = paint.unknown;
  pen.fillRect(gutter(), 0, width, height);
  if (map.detail === "nodes") drawNodes(pen, map, paint, x, height);
  else drawMixtures(pen, map, paint, width, height);
  drawChosen(pen, map, height);
  drawNow(pen, map, paint, x, height);
  drawUses(map, paint, x, width);
  drawTimes(map, width);
  describe(map);
  known.drawnSize = `${canvas.clientWidth} ${canvas.clientHeight}`;
  canvas.dataset.drawn = performance.now();
  canvas.dataset.view = `${map.want.first} ${map.want.count} ${map.want.step}`;
  canvas.dataset.took = performance.now() - begun;
}

function emptyWords() {
  const partition = known.status?.last_round ? "Slurm shows no node in the malleable partition." : "The daemon has not read Slurm yet.";
  return `${partition} Here each node will have a line that shows what it was used for.`;
}

/** A clean canvas, and its pen in units of CSS pixels. */
function sheet(canvas) {
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(canvas.clientWidth * scale);
  canvas.height = Math.round(canvas.clientHeight * scale);
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  return pen;
}

/** Limits the height of the map if there are few nodes. */
function fit(canvas) {
  const rows = known.map?.detail === "nodes" ? known.map.rows.length : Infinity;
  canvas.style.maxHeight = rows < 400 ? `${Math.max(1, rows) * MOST_PIXELS_A_NODE}px` : "";
  canvas.style.minHeight = rows < 10 ? "0" : "";
}

const rowHeight = (map, height) => Math.min(MOST_PIXELS_A_NODE, height / Math.max(1, map.rows.length));

function gutterFor(map, pen, width) {
  pen.font = "12px system-ui, sans-serif";
  const labels = map.detail === "nodes" ? map.rows.map((row) => row.node) : [brief(map.nodes)];
  const widest = Math.max(...labels.slice(0, MOST_ROWS).map((label) => pen.measureText(label).width), pen.measureText("nodes").width);
  return Math.round(clamp(widest + 12, 40, Math.min(150, width / 4)));
}

/** The text, or its end if it is too long: the ends of nodes' names differ. */
function cut(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let end = text;
  while (end.length > 1 && pen.measureText(`…${end}`).width > width) end = end.slice(1);
  return `…${end}`;
}

function drawNodes(pen, map, paint, x, height) {
  const high = rowHeight(map, height);
  const gap = high > 6 ? 1 : 0;
  const now = x(map.seen);
  const size = Math.min(12, high - 1);
  map.rows.forEach((row, i) => {
    const y = i * high;
    for (const [begin, end, code] of row.runs) {
      const colour = colourOf(code, paint);
      pen.fillStyle = colour;
      const [left, right] = [x(map.from + begin), x(map.from + end)];
      if (left < now) {
        const wide = Math.max(0.5, Math.min(now, right) - left);
        pen.fillRect(left, y, wide, high - gap);
        if (code > HIDDEN_JOB && high >= 14 && wide > 60) label(pen, String(code - JOBS_FROM), left, y, high);
      }
      if (right <= now) continue;
      // The plan.
      const planned = Math.max(left, now);
      pen.fillStyle = colour;
      pen.globalAlpha = PLANNED;
      pen.fillRect(planned, y + high * 0.25, right - planned, high * 0.5);
      pen.globalAlpha = 1;
    }
    if (high < PIXELS_A_NAME) return;
    pen.font = `${size}px system-ui, sans-serif`;
    pen.fillStyle = paint.ink;
    pen.textAlign = "right";
    pen.fillText(cut(pen, row.node, gutter() - 8), gutter() - 6, y + high / 2 + size * 0.35);
  });
  // Rows that are too thin for names have the first and the last one.
  if (high >= PIXELS_A_NAME || map.rows.length === 0) return;
  ends(pen, paint, map.rows[0].node, map.rows.at(-1).node, high * map.rows.length);
}

/** The number of a job in its bar. */
function label(pen, text, left, y, high) {
  pen.font = "11px system-ui, sans-serif";
  pen.textAlign = "left";
  pen.fillStyle = "#fff";
  pen.fillText(text, Math.max(left, gutter()) + 5, y + high / 2 + 4);
}

/** The first and the last label of the rows. */
function ends(pen, paint, first, last, height) {
  pen.font = "12px system-ui, sans-serif";
  pen.textAlign = "right";
  pen.fillStyle = paint.quiet;
  pen.fillText(cut(pen, first, gutter() - 8), gutter() - 6, 11);
  pen.fillText(cut(pen, last, gutter() - 8), gutter() - 6, height - 3);
}

function rgb(text) {
  const probe = document.createElement("canvas").getContext("2d");
  probe.fillStyle = text;
  probe.fillRect(0, 0, 1, 1);
  return probe.getImageData(0, 0, 1, 1).data;
}

function drawMixtures(pen, map, paint, width, height) {
  const { rows, columns, cells } = map;
  const parts = PARTS.map((part) => rgb(paint[part]));
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
  const drawn = document.createElement("canvas");
  [drawn.width, drawn.height] = [columns, rows.length];
  drawn.getContext("2d").putImageData(image, 0, 0);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(drawn, gutter(), 0, width, height);
  ends(pen, paint, brief(map.first + 1), brief(map.first + map.count), height);
}

/** Marks the node that is chosen. */
function drawChosen(pen, map, height) {
  if (view.chosen?.kind !== "node") return;
  const index = map.detail === "nodes" ? map.rows.findIndex((row) => row.node === view.chosen.name) : (known.node?.index ?? -1) - map.first;
  if (index < 0 || index >= map.count || (map.detail !== "nodes" && known.node?.name !== view.chosen.name)) return;
  const high = map.detail === "nodes" ? rowHeight(map, height) : height / map.count;
  pen.strokeStyle = style("accent");
  pen.lineWidth = 2.5;
  pen.strokeRect(gutter() + 1, index * high, room().width - 2, Math.max(2, high - 1));
}

function drawNow(pen, map, paint, x, height, top = 0) {
  const now = x(map.seen);
  if (now <= gutter() || now >= gutter() + room().width) return;
  pen.fillStyle = paint.ink;
  pen.fillRect(now - 0.75, top, 1.5, height - top);
}

/** The numbers of nodes by use, stacked. */
function drawUses(map, paint, x, width) {
  const canvas = at("uses");
  const pen = sheet(canvas);
  const high = canvas.clientHeight;
  const [top, base] = [8, high - 2];
  const columns = Math.round((map.to - map.from) / map.want.step);
  known.counts = countsOf(map);
  pen.fillStyle = paint.unknown;
  pen.fillRect(gutter(), top, width, base - top);
  const edge = (column) => gutter() + Math.round((column / columns) * width);
  for (let column = 0; column < columns; column++) {
    let y = base;
    const [left, wide] = [edge(column), edge(column + 1) - edge(column)];
    pen.globalAlpha = map.from + column * map.want.step < map.seen ? 1 : PLANNED;
    for (let part = 0; part < 6; part++) {
      const tall = (known.counts[column * 6 + part] / Math.max(1, map.count)) * (base - top);
      if (tall <= 0) continue;
      pen.fillStyle = paint[PARTS[part]];
      y = Math.max(top, y - tall);
      pen.fillRect(left, y, wide, tall);
    }
  }
  pen.globalAlpha = 1;
  pen.font = "12px system-ui, sans-serif";
  pen.textAlign = "right";
  pen.fillStyle = paint.quiet;
  pen.fillText(brief(map.count), gutter() - 6, top + 8);
  if (high > 70) pen.fillText("nodes", gutter() - 6, top + 22);
  pen.fillText("0", gutter() - 6, base);
  drawNow(pen, map, paint, x, base, top);
}

/** Marks of a time axis, as [seconds, words], at most one each 90 pixels. */
function marksOf(from, to, width) {
  const steps = [10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 172_800];
  const step = steps.find((secs) => ((to - from) / secs) * 90 <= width) ?? 604_800;
  const zone = new Date(from * 1000).getTimezoneOffset() * 60;
  const marks = [];
  for (let t = Math.ceil((from - zone) / step) * step + zone; t < to; t += step) {
    const date = new Date(t * 1000);
    const midnight = date.getHours() === 0 && date.getMinutes() === 0;
    marks.push([t, midnight ? dayOf(date).slice(5) : step < 60 ? secondOf(date) : hourOf(date)]);
  }
  return marks;
}

function drawTimes(map, width) {
  const place = (secs) => ((secs - map.from) / (map.to - map.from)) * width;
  const marks = marksOf(map.from, map.to, width);
  const shown = marks.filter(([secs]) => Math.abs(place(secs) - place(map.seen)) > 52 && place(secs) > 16 && place(secs) < width - 16);
  if (map.seen > map.from && map.seen < map.to) shown.push([map.seen, "now"]);
  at("times").replaceChildren(...shown.map(([secs, words]) => {
    const mark = make("span", words === "now" ? { class: "now" } : {}, words);
    mark.style.left = `${gutter() + place(secs)}px`;
    return mark;
  }));
}

// Words for the map.

function describe(map) {
  const shown = map.count === map.nodes ? `All ${one(map.nodes, "node")}` : `${brief(map.count)} of ${one(map.nodes, "node")}, from number ${brief(map.first + 1)} on`;
  const detail = map.detail === "nodes" ? "one per row" : "several per row, with mixed colours";
  say(at("map-words"), `${shown}, ${detail}; ${clock(map.from)} to ${clock(map.to)}; observed until ${clock(map.seen)}. Paler is planned.`);
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
  const past = clamp(Math.floor((map.seen - map.from) / map.want.step), 1, map.columns);
  const sums = new Float64Array(6);
  for (let cell = 0; cell < past * 6; cell++) sums[cell % 6] += known.counts[cell];
  const row = (part, i) => [WORDS[part], `${((sums[i] / (map.count * past)) * 100).toFixed(1)} %`];
  fill(at("map-table"), ["Use of the nodes", "Share of node-time"], PARTS.map(row));
}

function showLegend() {
  const entries = Object.entries(WORDS).map(([kind, words]) => make("li", {}, make("i", { class: kind }), words));
  entries.splice(2, 0, make("li", {}, make("i", { class: "jobs" }), "on the map: a colour each"));
  at("legend").replaceChildren(...entries);
}

// Pointing at the map.

function pointed(event) {
  const box = at("map").getBoundingClientRect();
  const left = box.left + gutter();
  return { x: (event.clientX - left) / Math.max(1, box.width - gutter()), y: (event.clientY - box.top) / box.height, high: box.height };
}

function rowAt(map, { y, high }) {
  return map.detail === "nodes" ? map.rows[Math.floor((y * high) / rowHeight(map, high))] : undefined;
}

/** Chooses the node or the job at a point of the map. */
function pick(point) {
  const map = known.map;
  if (!map) return;
  if (map.detail !== "nodes") return zoomNodes(0.25, point.y);
  const row = rowAt(map, point);
  if (!row) return;
  const secs = point.x * (map.to - map.from);
  const run = row.runs.find(([begin, end]) => begin <= secs && secs < end);
  const job = run && run[2] > HIDDEN_JOB && map.from + secs <= map.seen;
  choose(job ? { kind: "job", name: String(run[2] - JOBS_FROM) } : { kind: "node", name: row.node }, true);
}

/** What is at a point of the map, in lines. */
function linesAt(point) {
  const map = known.map;
  if (!map || point.x < 0 || point.x > 1) return null;
  const secs = point.x * (map.to - map.from);
  if (map.detail !== "nodes") return countLines(map, secs, `nodes near number ${brief(Math.ceil(map.first + point.y * map.count))}`, point);
  const row = rowAt(map, point);
  if (!row) return null;
  const run = row.runs.find(([begin, end]) => begin <= secs && secs < end);
  if (!run) return [row.node, `${clock(map.from + secs)}: ${WORDS.unknown}`];
  const planned = map.from + run[0] >= map.seen || map.from + secs > map.seen ? "planned: " : "";
  return [row.node, `${planned}${wordOf(run[2])}`, `${clock(map.from + run[0])} to ${clock(map.from + run[1])}`];
}

/** The shares of a cell, or the numbers of nodes of a column. */
function countLines(map, secs, title, point) {
  const column = clamp(Math.floor(secs / map.want.step), 0, Math.round((map.to - map.from) / map.want.step) - 1);
  const lines = [`${title}, ${clock(map.from + secs)}`];
  PARTS.forEach((part, i) => {
    if (!point) {
      const nodes = Math.round(known.counts[column * 6 + i]);
      if (nodes) lines.push(`${WORDS[part]}: ${brief(nodes)}`);
      return;
    }
    const row = clamp(Math.floor(point.y * map.rows.length), 0, map.rows.length - 1);
    const byte = map.cells[(row * map.columns + column) * 3 + (i >> 1)];
    const fifteenths = i % 2 ? byte & 15 : byte >> 4;
    if (fifteenths) lines.push(`${WORDS[part]}: ${share(fifteenths, 15)}`);
  });
  return lines;
}
