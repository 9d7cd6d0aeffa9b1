// Sessions and requests.

const KEPT = "infill-session";

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
  say(at("notice"), words ?? "");
}

function complain(error) {
  if (error?.name !== "AbortError") notice(error);
}
