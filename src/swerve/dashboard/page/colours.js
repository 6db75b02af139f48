// One hue for a meaning (or, where meanings are not known, for a result), the same in the list and in the charts.

const HUES = 10;
/** Results of the same meaning: how much of the card's colour is mixed in. */
const PALER = [0, 0.35, 0.55, 0.7];

const probe = document.createElement("span");
probe.hidden = true;

const seen = new Map();

/** A custom property of the style sheet as numbers [r, g, b], in the theme of now. */
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

/** The theme has changed. */
export const repaint = () => seen.clear();

const text = (parts) => `rgb(${parts.map(Math.round).join(", ")})`;

/** A colour of the theme, as charts need it. */
export const themed = (name) => text(resolved(name));

export class Colours {
  constructor() {
    this.reset();
  }

  /** For another query: hues are given anew. */
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

  /** Where a result stands among the hues: those of one meaning lie together. */
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
