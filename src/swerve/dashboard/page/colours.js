// One hue per meaning (or per result if meanings are not known), equal in the list and in the charts.

const HUES = 10;
/** Results of the same meaning: the share of the card's colour that is mixed in. */
const PALER = [0, 0.35, 0.55, 0.7];

const probe = document.createElement("span");
probe.hidden = true;

const seen = new Map();

/** A custom property of the style sheet as numbers [r, g, b], in the current theme. */
function resolved(name) {
  if (!seen.has(name)) {
    if (!probe.isConnected) document.body.append(probe);
    probe.style.color = `var(${name})`;
    seen.set(
      name,
      getComputedStyle(probe)
        .color.match(/[\d.]+/g)
        .slice(0, 3)
        .map(Number),
    );
  }
  return seen.get(name);
}

/** Forget the colours after a change of the theme. */
export const repaint = () => seen.clear();

const text = (parts) => `rgb(${parts.map(Math.round).join(", ")})`;

/** A colour of the theme, in the form that charts need. */
export const themed = (name) => text(resolved(name));

export class Colours {
  constructor() {
    this.reset();
  }

  /** Assign hues again, for another query. */
  reset() {
    this.meanings = new Map();
    this.results = new Map();
  }

  hue(meaning) {
    if (!this.meanings.has(meaning)) this.meanings.set(meaning, { place: this.meanings.size % HUES, results: 0 });
    return this.meanings.get(meaning);
  }

  meaning(name) {
    return themed(`--hue-${this.hue(name).place}`);
  }

  /** The index of a result among the hues: results of one meaning are adjacent. */
  place(id, meaning = id) {
    const names = [...this.meanings.keys()];
    const at = names.indexOf(meaning);
    return at < 0 ? names.length : at;
  }

  result(id, meaning = id) {
    if (!this.results.has(id)) {
      const hue = this.hue(meaning);
      this.results.set(id, { place: hue.place, paler: PALER[Math.min(hue.results++, PALER.length - 1)] });
    }
    const { place, paler } = this.results.get(id);
    const [hue, card] = [resolved(`--hue-${place}`), resolved("--card")];
    return text(hue.map((part, j) => part * (1 - paler) + card[j] * paler));
  }
}
