// SPDX-License-Identifier: Apache-2.0 OR MIT
// The network as SVG: hosts below, switches in tiers above, each cable with a line for each direction.

const SVG = "http://www.w3.org/2000/svg";
const ROW_PX = 92;
const MARGIN_PX = 20;
const LABEL_MAX = 9;
const LETTER_PX = 7.2;
const APART_PX = 2.6;

function drawn(name, attributes = {}, ...content) {
  const made = document.createElementNS(SVG, name);
  Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
  made.append(...content);
  return made;
}

const nodeOf = (end) => end.slice(0, end.lastIndexOf(":"));
const shortened = (name) => (name.length > LABEL_MAX ? `…${name.slice(1 - LABEL_MAX)}` : name);

// Rows from the bottom to the top; a host stands where its switch does.
function rowsOf(network) {
  const switches = network.nodes.filter((node) => node.kind === "switch");
  const count = Math.max(0, ...switches.map((node) => node.tier));
  const rows = Array.from({ length: count }, (_, tier) => switches.filter((node) => node.tier === tier + 1));
  const order = new Map(switches.map((node, at) => [node.name, at]));
  const home = new Map(network.cables.map((cable) => [nodeOf(cable.a), order.get(nodeOf(cable.b))]));
  const at = (kind) => network.nodes.filter((node) => node.kind === kind)
    .map((node, number) => [home.get(node.name) ?? 0, number, node])
    .sort((one, other) => one[0] - other[0] || one[1] - other[1]).map(([, , node]) => node);
  return [at("host"), ...rows, at("server")].filter((row) => row.length);
}

// Draws into `svg` for a width; returns the elements of each cable.
function drawTree(svg, network, width) {
  const rows = rowsOf(network);
  const widest = Math.max(1, ...rows.map((row) => row.length));
  const letters = Math.max(1, ...network.nodes.map((node) => shortened(node.name).length));
  const inner = Math.max(width - 2 * MARGIN_PX, widest * 16);
  const positions = new Map();
  const boxes = [];
  const tall = 14 + letters * LETTER_PX;
  const bottom = MARGIN_PX + (rows.length - 1) * ROW_PX + 14;
  rows.forEach((row, up) => {
    const column = inner / row.length;
    const isUpright = column < letters * LETTER_PX + 10;
    row.forEach((node, number) => {
      const x = MARGIN_PX + (number + 0.5) * column;
      const y = bottom - up * ROW_PX;
      positions.set(node.name, [x, y, up]);
      const boxWidth = isUpright ? Math.min(18, column - 2) : Math.min(letters * LETTER_PX + 14, column - 4);
      const boxHeight = isUpright ? tall : 24;
      const text = drawn("text", isUpright ? { transform: `translate(${x} ${y}) rotate(-90)` } : { x, y });
      text.textContent = shortened(node.name);
      const title = drawn("title");
      title.textContent = node.connected ? node.name : `${node.name}, not connected`;
      const place = { x: x - boxWidth / 2, y: y - boxHeight / 2, width: boxWidth, height: boxHeight };
      boxes.push(drawn("g", { class: `node ${node.kind}${node.connected ? "" : " lost"}` },
        drawn("rect", { ...place, rx: node.kind === "switch" ? 4 : 9 }), text, title));
    });
  });
  const cables = network.cables.filter((cable) => positions.has(nodeOf(cable.a)) && positions.has(nodeOf(cable.b)))
    .map((cable) => drawCable(cable, positions));
  const height = bottom + Math.max(16, tall / 2) + 8;
  svg.setAttribute("width", inner + 2 * MARGIN_PX);
  svg.setAttribute("height", height);
  svg.setAttribute("viewBox", `0 0 ${inner + 2 * MARGIN_PX} ${height}`);
  svg.replaceChildren(...cables.map((one) => one.group), ...boxes);
  return cables;
}

function drawCable(cable, positions) {
  const [x, y, up] = positions.get(nodeOf(cable.a));
  const [toX, toY, toUp] = positions.get(nodeOf(cable.b));
  const length = Math.hypot(toX - x, toY - y) || 1;
  const across = [(-(toY - y) / length) * APART_PX, ((toX - x) / length) * APART_PX];
  const bend = up === toUp ? Math.min(70, 26 + length / 8) : 0;
  const line = (side) => {
    const [dx, dy] = [across[0] * side, across[1] * side];
    const middle = `${(x + toX) / 2 + dx} ${(y + toY) / 2 - bend + dy}`;
    return `M${x + dx} ${y + dy}Q${middle} ${toX + dx} ${toY + dy}`;
  };
  const ways = [drawn("path", { class: "way", d: line(1) }), drawn("path", { class: "way", d: line(-1) })];
  const group = drawn("g", { class: "cable", role: "button", tabindex: "-1", "aria-pressed": "false" },
    drawn("path", { class: "hit", d: line(0) }), ...ways);
  group.dataset.number = cable.number;
  return { cable, group, ways };
}
