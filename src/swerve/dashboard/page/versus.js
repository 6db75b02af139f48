// The service against the search engine's own order, on the same simulated users: clicks gained, and clicks by slot.

import { byId, count, keyed, make, places, show, write } from "./dom.js";

const [LIVE, ENGINE] = ["swerve", "fixed"];
const rate = (part) => (Number.isFinite(part) ? `${places(part * 100)}\u00a0%` : "–");

/** A gain in percent with its sign. */
const signed = (gain) => `${gain < 0 ? "−" : "+"}${places(Math.abs(gain))} %`;

/** All searches, the famous queries and the tail: `{name, ctr, impressions, gain}`; a gain is null while there are no clicks. */
function parts({ ctr, impressions, head, tail }) {
  const whole = ctr?.[ENGINE] ? 100 * (ctr[LIVE] / ctr[ENGINE] - 1) : null;
  const part = (name, { ctr: rates, impressions: searches, gained_percent: gain }) => ({ name, ctr: rates, impressions: searches, gain });
  return [
    { name: "All searches", ctr, impressions, gain: whole },
    ...(head ? [part("Famous queries", head)] : []),
    ...(tail ? [part("Rare and young queries", tail)] : []),
  ];
}

/** Draw the gains, from the first report on. */
export function drawVersus(state) {
  const { demo } = state;
  const known = Boolean(state.simulated && demo?.ctr && LIVE in demo.ctr && ENGINE in demo.ctr);
  show(byId("versus-part"), known);
  if (!known) return;
  const create = ({ name }) => make("div", "tile", "", make("dt", "", name), make("dd", "value"), make("dd", "note soft small"));
  keyed(
    byId("versus"),
    parts(demo),
    ({ name }) => name,
    create,
    (node, { ctr, impressions, gain }) => {
      const value = node.querySelector(".value");
      write(value, gain === null ? "–" : `${signed(gain)} clicks`);
      value.dataset.kind = gain > 0 ? "good" : "";
      const rates = impressions ? `${rate(ctr[LIVE])} clicked, against ${rate(ctr[ENGINE])}, of ` : "";
      write(node.querySelector(".note"), `${rates}${count(impressions)} searches`);
    },
  );
  drawSlots(demo);
}

/** Draw the clicks by slot, as bars and as a table. */
function drawSlots({ slots, impressions }) {
  const pairs = (slots?.[LIVE] ?? []).map((clicks, slot) => ({
    slot: slot + 1,
    live: (100 * clicks) / Math.max(impressions, 1),
    engine: (100 * slots[ENGINE][slot]) / Math.max(impressions, 1),
  }));
  const most = Math.max(1, ...pairs.flatMap(({ live, engine }) => [live, engine]));
  show(byId("slots"), pairs.length > 0);
  const bars = () => make("span", "bars", "", make("span", "column live"), make("span", "column engine"));
  keyed(
    byId("slots"),
    pairs,
    ({ slot }) => slot,
    ({ slot }) => make("li", "", "", bars(), make("span", "soft small", String(slot))),
    (node, { live, engine }) => {
      node.querySelector(".live").style.setProperty("--part", (live / most).toFixed(3));
      node.querySelector(".engine").style.setProperty("--part", (engine / most).toFixed(3));
    },
  );
  const row = ({ slot }) => {
    const head = make("th", "", String(slot));
    head.scope = "row";
    return make("tr", "", "", head, make("td"), make("td"));
  };
  keyed(
    byId("slot-table"),
    pairs,
    ({ slot }) => slot,
    row,
    (node, { live, engine }) => {
      write(node.cells[1], places(live));
      write(node.cells[2], places(engine));
    },
  );
}
