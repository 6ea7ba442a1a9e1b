// A recording: its spectrogram with coloured spans, and the sound to play.

import { media } from "./api.js";
import { h, s } from "./dom.js";
import { paint, region } from "./regions.js";

const HEIGHT = 300;
const LEFT = 44;
const BOTTOM = 22;

function steps(range, most) {
  const rough = range / most;
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1e-9)));
  return [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
}

export function audioView(bag, tools) {
  const { places, files, seconds, top } = bag.view;
  const long = Math.max(seconds ?? 0, ...places.end);
  const high = Math.max(top ?? 0, ...places.high);
  // as wide as the window leaves room for; long recordings scroll
  const side = window.innerWidth > 992 ? Math.max(window.innerWidth * 0.68 - 40, window.innerWidth - 480) : window.innerWidth - 60;
  const width = Math.max(360, Math.round(side), Math.min(24000, long * 40));
  const x = (time) => LEFT + (time / long) * (width - LEFT);
  const y = (frequency) => HEIGHT - (frequency / high) * HEIGHT;
  const spans = bag.parts.map((_, p) => region("rect", { x: x(places.start[p]), y: y(places.high[p]), width: Math.max(2, x(places.end[p]) - x(places.start[p])), height: Math.max(2, y(places.low[p]) - y(places.high[p])) }, p, tools));
  const second = steps(long, width / 90);
  const hertz = steps(high, 6);
  const axis = [];
  for (let time = 0; time <= long + 1e-9; time += second) axis.push(s("text", { x: x(time), y: HEIGHT + 15, "text-anchor": time === 0 ? "start" : "middle" }, `${Number(time.toFixed(2))} s`));
  for (let frequency = 0; frequency <= high * 0.98; frequency += hertz) axis.push(s("text", { x: LEFT - 6, y: Math.min(HEIGHT - 2, y(frequency) + 4), "text-anchor": "end" }, `${Number((frequency / 1000).toFixed(2))} k`));
  const source = bag.view.at_hand ? media(bag.number, "spectrogram") : null;
  const sound = bag.view.at_hand ? media(bag.number, "sound") : null;
  const back = source ? s("image", { href: source, x: LEFT, y: y(top), width: x(seconds) - LEFT, height: HEIGHT - y(top), preserveAspectRatio: "none" }) : null;
  const cursor = s("line", { x1: LEFT, x2: LEFT, y1: 0, y2: HEIGHT, class: "cursor" });
  const picture = s("svg", { viewBox: `0 0 ${width} ${HEIGHT + BOTTOM}`, width, height: HEIGHT + BOTTOM, class: "spectrogram", role: "group", "aria-label": "Spectrogram with the parts" },
    s("rect", { x: LEFT, y: 0, width: width - LEFT, height: HEIGHT, class: "night" }), back, spans, cursor, axis);
  const strip = h("div", { class: "strip", tabindex: 0, role: "region", "aria-label": "Spectrogram, scrolls sideways" }, picture);
  const player = sound ? h("audio", { controls: true, preload: "metadata", src: sound, "aria-label": `Sound of ${files[0]}`, ontimeupdate: follow, onerror: () => player.replaceWith(h("p", { class: "quiet" }, "The browser cannot play this recording; its parts are drawn.")) }) : h("p", { class: "quiet" }, "The recording itself is not at hand (name its folder with --originals); where its parts lie is drawn.");
  let until = null;

  function follow() {
    cursor.setAttribute("x1", x(player.currentTime));
    cursor.setAttribute("x2", x(player.currentTime));
    if (until !== null && player.currentTime >= until) { player.pause(); until = null; }
  }

  return {
    element: h("figure", { class: "medium" }, strip, player, h("figcaption", { class: "quiet" }, files.join(", "))),
    update: (now, how) => paint(spans, now, how, 0.2),
    leave: () => { if (player.pause) player.pause(); },
    reveal: (p) => { strip.scrollLeft = Math.max(0, x(places.start[p]) - strip.clientWidth / 3); },
    play: (p) => {
      if (!player.play) return;
      if (!player.paused) { player.pause(); return; }
      if (p !== null) { player.currentTime = places.start[p]; until = places.end[p]; } else until = null;
      player.play().catch(() => {});
    },
  };
}
