// The data of the map of nodes × time: which part is shown, and loading it.

const PIXELS_A_NODE = 4;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600]; // seconds per column
const LEAST_FIT = 60; // seconds
const MOST_FIT = 6 * 3600;
const WIDEST = 1500; // columns

/** Seconds of the past that are shown. "fit" has all data of the last hours, and no more. */
function spanShown() {
  if (view.span !== "fit") return view.span;
  const since = known.summary?.since;
  const age = since === null || since === undefined ? 0 : seconds() - since;
  // Rounded up, so that the map keeps its scale for a while.
  const step = age < 600 ? 60 : age < 3600 ? 120 : age < 3 * 3600 ? 600 : 1800;
  return clamp(Math.ceil(age / step) * step, LEAST_FIT, MOST_FIT);
}

/** The time that is shown. It begins and ends at whole columns, so that columns can be kept as time goes on. */
function stretch() {
  const span = spanShown();
  const width = Math.min(WIDEST, room().width);
  const length = span * (1 + AHEAD);
  const step = STEPS.find((secs) => length / secs <= width) ?? STEPS.at(-1);
  const end = view.end ?? seconds() + span * AHEAD;
  const to = Math.ceil(end / step) * step;
  const from = to - Math.ceil(length / step) * step;
  return { from, to, step, columns: (to - from) / step };
}

function room() {
  const box = at("map").getBoundingClientRect();
  return { width: Math.max(100, Math.floor(box.width - gutter())), height: Math.max(100, Math.floor(box.height)) };
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

/** Numbers of nodes by column and part, from the rows of the map. */
function countsOf(map) {
  const columns = Math.round((map.to - map.from) / map.want.step);
  const counts = new Float32Array(columns * PARTS.length);
  if (map.detail === "mixtures") {
    map.rows.forEach((nodes, row) => {
      for (let column = 0; column < columns; column++) {
        const from = (row * columns + column) * 3;
        for (let part = 0; part < 6; part++) {
          const byte = map.cells[from + (part >> 1)];
          counts[column * 6 + part] += ((part % 2 ? byte & 15 : byte >> 4) / 15) * nodes;
        }
      }
    });
    return counts;
  }
  for (const { runs } of map.rows) {
    for (const [begin, end, code] of runs) {
      const part = code >= HIDDEN_JOB ? 1 : PARTS.indexOf(KINDS[code]);
      const [left, right] = [begin / map.want.step, end / map.want.step];
      for (let column = Math.floor(left); column < Math.min(columns, right); column++) {
        counts[column * 6 + part] += Math.min(right, column + 1) - Math.max(left, column);
      }
    }
  }
  return counts;
}

// Moving about.

/** Shows this length of time. `where`: the place that stays where it is, from 0 at the left edge to 1. */
function zoomTime(factor, where = 1) {
  const { from, to } = stretch();
  const fixed = from + (to - from) * where;
  view.span = clamp(spanShown() * factor, LEAST, LONGEST);
  if (where < 1 - AHEAD) view.end = Math.round(fixed + view.span * (1 + AHEAD) * (1 - where));
  again(true);
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
  const { from, to } = stretch();
  const latest = seconds() + spanShown() * AHEAD;
  const next = Math.round(to + (to - from) * share);
  view.end = next >= latest ? null : next;
  again(true);
}

let soon = null;

/** Loads what is shown now, soon. `isTime`: whether another time is shown, not only other nodes. */
function again(isTime = false) {
  press();
  keepLink(false);
  clearTimeout(soon);
  soon = setTimeout(() => {
    known.userLoad = Promise.all([load(), isTime ? loadLanes(true) : null]).then(() => notice(null), complain);
  }, 60);
}
