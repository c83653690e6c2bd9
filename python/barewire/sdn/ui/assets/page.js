// SPDX-License-Identifier: Apache-2.0 OR MIT
// The page's state, its tables and histories. Everything from the network is set as text, never as markup.
(() => {
  const HISTORY_MAX = 300;
  const BUSIEST = 8;
  const LEVELS = [0.25, 0.5, 0.75];
  // The history's picture, in its own units.
  const WIDE = 300;
  const HIGH = 100;

  const at = (id) => document.getElementById(id);
  const empty = () => ({
    network: { nodes: [], cables: [], left_out: 0 }, load: null, history: [], flows: { total: 0, groups: [], flows: [] },
    jobs: { total: 0, jobs: [] }, events: { events: [] }, status: null, experiment: { experiment: null },
    tenants: { tenants: [] },
  });
  let state = empty();
  let chosen = null;
  let focused = 0;
  let cables = [];
  let drawnWidth = 0;
  let scheduled = false;
  const changed = new Set();

  // Numbers

  function rate(bits) {
    const [factor, unit] = [[1e9, "Gb/s"], [1e6, "Mb/s"], [1e3, "kb/s"]].find(([from]) => bits >= from) || [1, "b/s"];
    const value = bits / factor;
    return `${value >= 100 || factor === 1 ? Math.round(value) : value.toPrecision(3)} ${unit}`;
  }

  function duration(seconds) {
    const whole = Math.max(0, Math.round(seconds));
    if (whole < 120) return `${whole} s`;
    return whole < 7200 ? `${Math.round(whole / 60)} min` : `${Math.round(whole / 3600)} h`;
  }

  const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");
  const percent = (fraction) => `${Math.round(100 * fraction)} %`;
  const counted = (count, noun, nouns = `${noun}s`) => `${count} ${count === 1 ? noun : nouns}`;
  const loadOf = (number) => state.load?.loads[number] ?? 0;
  const keyOf = (cable) => `${cable.a}–${cable.b}`;

  // Each direction: sending end, receiving end, load and its fraction of the rate, null if that is unknown.
  function directions(cable) {
    return [[cable.a, cable.b], [cable.b, cable.a]].map(([from, to], side) => {
      const load = loadOf(cable.number + side);
      return { cable, side, from, to, load, limit: cable.rates[side], fraction: cable.rates[side] ? load / cable.rates[side] : null };
    });
  }

  function loadText(way) {
    return way.fraction === null ? rate(way.load) : `${rate(way.load)}, ${percent(way.fraction)} of ${rate(way.limit)}`;
  }

  function level(way, highest) {
    const fraction = way.fraction ?? (highest ? way.load / highest : 0);
    if (fraction < 0.005) return 0;
    return 1 + LEVELS.filter((bound) => fraction >= bound).length;
  }

  // Elements are kept and their text is replaced: a page that is open for days has as many as one that was just opened.

  function say(id, text) {
    const element = at(id);
    if (element.textContent !== text) element.textContent = text;
  }

  function mark(element, name, value) {
    if (element.getAttribute(name) !== value) element.setAttribute(name, value);
  }

  function fill(id, rows, columns, nothing) {
    const body = at(id);
    const wanted = rows.length || !nothing ? rows : [[nothing]];
    while (body.rows.length > wanted.length) body.deleteRow(-1);
    wanted.forEach((cells, number) => {
      const row = body.rows[number] || body.insertRow();
      while (row.cells.length > cells.length) row.deleteCell(-1);
      cells.forEach((text, column) => {
        const cell = row.cells[column] || row.insertCell();
        const isNothing = !rows.length;
        cell.colSpan = isNothing ? columns.length : 1;
        const kind = isNothing ? "text none" : columns[column];
        if (cell.className !== kind) cell.className = kind;
        const target = cell.firstElementChild || cell;
        if (target.textContent !== String(text)) target.textContent = text;
      });
    });
    return body;
  }

  function plot(svg, lines, highest) {
    mark(svg, "viewBox", `0 0 ${WIDE} ${HIGH}`);
    while (svg.children.length > lines.length) svg.lastElementChild.remove();
    lines.forEach(({ kind, values }, number) => {
      const line = svg.children[number] || svg.appendChild(drawn("polyline"));
      mark(line, "class", kind);
      const points = values.map((value, x) => `${WIDE - values.length + x + 1},${(HIGH - 2 - (HIGH - 6) * Math.min(value / (highest || 1), 1)).toFixed(1)}`);
      mark(line, "points", points.join(" "));
    });
  }

  const since = () => (state.history.length ? duration(state.load.at_s - state.history[0].at_s) : "0 s");

  // Parts of the page

  function showStatus() {
    if (!state.status) return;
    const { connected, switches, hosts, links, flows, jobs } = state.status;
    say("counts", `${connected} of ${counted(switches, "switch", "switches")}, ${counted(hosts, "host")}, `
      + `${counted(links, "link")} between switches, ${counted(flows, "flow")}, ${counted(jobs, "job")}`);
    const policy = Object.entries(state.status.policy).map(([profile, name]) => `${profile} by ${name}`).join(", ");
    say("flows-text", `${counted(state.flows.total, "flow")}. Policy: ${policy}.`);
  }

  function busiest() {
    return state.network.cables.filter((cable) => cable.up).flatMap(directions)
      .sort((one, other) => (other.fraction ?? other.load / 1e12) - (one.fraction ?? one.load / 1e12) || other.load - one.load);
  }

  function showHeadline() {
    if (!state.status) return;
    const down = state.network.cables.filter((cable) => !cable.up);
    const lost = state.network.nodes.filter((node) => !node.connected);
    const [top] = busiest();
    const load = top && top.load ? `The busiest link is ${top.from} to ${top.to}: ${loadText(top)}` : "All links are idle";
    const faults = [
      ...(lost.length ? [`not connected: ${lost.map((node) => node.name).join(", ")}`] : []),
      ...(down.length ? [`links that failed: ${down.map((cable) => `${cable.a} – ${cable.b}`).join(", ")}`] : []),
    ].join("; ");
    say("headline", `${load}. ${lost.length + down.length ? `Faults: ${counted(lost.length + down.length, "fault")}.` : "No fault."}`);
    say("faults", faults ? faults[0].toUpperCase() + faults.slice(1) : "No switch is disconnected, and no link has failed in the last ten minutes.");
    at("faults").classList.toggle("bad", Boolean(faults));
    say("left-out", state.network.left_out ? `${state.network.left_out} more links are not drawn; those to hosts are left out first.` : "");
  }

  function showTree() {
    const highest = Math.max(0, ...(state.load?.loads ?? []));
    for (const { cable, group, ways } of cables) {
      const both = directions(cable);
      both.forEach((way, side) => mark(ways[side], "class", `way ${cable.up ? `l${level(way, highest)}` : "down"}`));
      mark(group, "aria-label", cable.up ? both.map((way) => `${nodeOf(way.from)} to ${nodeOf(way.to)}: ${loadText(way)}`).join("; ")
        : `${cable.a} to ${cable.b}: failed`);
      mark(group, "aria-pressed", String(keyOf(cable) === chosen));
    }
  }

  function draw() {
    const hadFocus = at("tree").contains(document.activeElement);
    const held = cables[focused] && keyOf(cables[focused].cable);
    drawnWidth = at("tree-box").clientWidth;
    cables = drawTree(at("tree"), state.network, drawnWidth);
    // The focus stays on its link, whatever links came or went before it.
    const again = cables.findIndex(({ cable }) => keyOf(cable) === held);
    focused = again < 0 ? Math.min(focused, Math.max(cables.length - 1, 0)) : again;
    if (cables.length) cables[focused].group.setAttribute("tabindex", "0");
    if (hadFocus) cables[focused]?.group.focus();
    showTree();
  }

  function showBusiest() {
    const rows = busiest().slice(0, BUSIEST);
    const body = fill("busiest", rows.map((way) => ["", rate(way.load), way.fraction === null ? "" : percent(way.fraction)]),
      ["text", "", ""], "No link is known yet.");
    rows.forEach((way, number) => {
      const cell = body.rows[number].cells[0];
      const button = cell.querySelector("button") || cell.appendChild(document.createElement("button"));
      button.type = "button";
      button.dataset.choose = keyOf(way.cable);
      const text = `${way.from} → ${way.to}`;
      if (button.textContent !== text) button.textContent = text;
    });
  }

  function ends(flow) {
    const [from, to] = flow.ports || [];
    return `${flow.protocol} ${flow.source}${from ? `:${from}` : ""} → ${flow.destination}${to ? `:${to}` : ""}`;
  }

  const jobName = (id) => state.jobs.jobs.find((job) => job.id === id)?.name || id;

  function flowRow(flow) {
    const who = flow.job === null ? `${flow.profile}, known by ${flow.known_by}` : `${flow.profile}, of job ${jobName(flow.job)}`;
    const why = `${flow.strategy}: ${flow.why}${flow.installed ? "" : ", being installed"}`;
    return [ends(flow), rate(flow.rate_bit_s), `${who}. ${why}, for ${duration(state.load.at_s - flow.since_s)}`];
  }

  function showLink() {
    const cable = state.network.cables.find((one) => keyOf(one) === chosen);
    at("no-link").hidden = Boolean(cable);
    at("link").hidden = !cable;
    say("link-title", cable ? `Link ${nodeOf(cable.a)} – ${nodeOf(cable.b)}` : "A link");
    if (!cable) {
      showBusiest();
      return;
    }
    say("link-name", `${cable.a} – ${cable.b}${cable.up ? "" : ", failed"}`);
    const both = directions(cable);
    ["one", "two"].forEach((name, side) => {
      say(`way-${name}`, `${both[side].from} → ${both[side].to}`);
      say(`load-${name}`, cable.up ? loadText(both[side]) : "failed");
    });
    const values = [0, 1].map((side) => state.history.map((row) => row.loads[cable.number + side] ?? 0));
    const most = Math.max(1, ...values.flat());
    const limit = Math.max(cable.rates[0] ?? 0, cable.rates[1] ?? 0);
    const highest = Math.max(most, limit);
    plot(at("link-history"), [{ kind: "one", values: values[0] }, { kind: "two", values: values[1] },
      ...(limit ? [{ kind: "limit", values: state.history.map(() => limit) }] : [])], highest);
    const text = `The last ${since()}; highest ${values.map((side) => rate(Math.max(0, ...side))).join(" and ")}${limit ? `; dotted: ${rate(limit)}` : ""}`;
    say("link-history-text", text);
    mark(at("link-history"), "aria-label", text);
    const on = state.flows.flows.filter((flow) => flow.path.includes(cable.number) || flow.path.includes(cable.number + 1));
    const unlisted = state.flows.total - state.flows.flows.length;
    say("on-link-text", unlisted ? `Of the ${state.flows.flows.length} fastest flows; ${unlisted} slower ones are not listed.` : counted(on.length, "flow"));
    fill("on-link", on.map(flowRow), ["text wrap", "", "text wrap"], "No flow uses this link.");
  }

  function showHistory() {
    const toHosts = state.network.cables.filter((cable) => state.network.hosts.has(nodeOf(cable.a))).map((cable) => cable.number + 1);
    const values = state.history.map((row) => toHosts.reduce((sum, number) => sum + (row.loads[number] ?? 0), 0));
    const highest = Math.max(1, ...values);
    plot(at("history"), [{ kind: "one", values }], highest);
    const text = `Delivered to all hosts, the last ${since()}: now ${rate(values.at(-1) ?? 0)}, highest ${rate(highest === 1 ? 0 : highest)}`;
    say("history-text", text);
    mark(at("history"), "aria-label", text);
  }

  function showFlows() {
    fill("groups", state.flows.groups.map((group) => [group.profile, group.strategy, group.known_by, group.flows, rate(group.rate_bit_s)]),
      ["text", "text", "text", "", ""], "No flow is placed.");
  }

  function showJobs() {
    const { jobs, total } = state.jobs;
    say("jobs-text", total > jobs.length ? `The latest ${jobs.length} of ${total} jobs.` : counted(total, "job"));
    fill("jobs", jobs.map((job) => {
      const hosts = job.hosts.join(", ") + (job.host_count > job.hosts.length ? ` and ${job.host_count - job.hosts.length} more` : "");
      const phase = job.patterns ? `${job.current + 1} of ${job.patterns}, ${counted(job.current_flows ?? 0, "flow")}` : "no pattern";
      return [job.name || job.id, job.profile, hosts, phase];
    }), ["text", "text", "text wrap", ""], "No job is announced.");
  }

  function showTenants() {
    at("tenants-section").hidden = !state.tenants.tenants.length;
    fill("tenants", state.tenants.tenants.map((tenant) => [tenant.name, tenant.hosts.join(", "), percent(tenant.share), percent(tenant.ceiling),
      rate(tenant.sent_bit_s), tenant.jobs, tenant.limited.join(", ") || "nowhere"]), ["text", "text", "", "", "", "", "text"], "");
  }

  function showEvents() {
    fill("events", state.events.events.toReversed().map((event) => [clock(event.at_s), event.kind, event.text]),
      ["text", "text", "text"], "Nothing has happened yet.");
  }

  function showExperiment() {
    const { experiment } = state.experiment;
    at("experiment").hidden = !experiment;
    if (!experiment) return;
    say("experiment-text", `Experiment: ${experiment.text}, ${experiment.done} of ${experiment.total} done`);
    mark(at("progress"), "max", String(Math.max(experiment.total, 1)));
    mark(at("progress"), "value", String(experiment.done));
  }

  // What each kind of event changes.
  const PARTS = {
    network: [draw, showHeadline, showLink, showHistory], load: [showTree, showHeadline, showLink, showHistory], history: [showHistory],
    flows: [showFlows, showStatus, showLink], jobs: [showJobs], tenants: [showTenants], events: [showEvents],
    status: [showStatus, showHeadline], experiment: [showExperiment],
  };

  function take(kind, document) {
    if (kind === "history") {
      state.history = document.slice(-HISTORY_MAX);
    } else if (kind === "load") {
      if (state.load && state.load.generation !== document.generation) state.history = [];
      state.load = document;
      if (state.history.at(-1)?.at_s !== document.at_s) state.history.push(document);
      if (state.history.length > HISTORY_MAX) state.history.shift();
    } else if (kind in PARTS) {
      state[kind] = document;
      if (kind === "network") document.hosts = new Set(document.nodes.filter((node) => node.kind !== "switch").map((node) => node.name));
    }
    changed.add(kind);
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(() => {
      scheduled = false;
      // The first states may arrive one by one; all parts need the load.
      if (!state.load) return;
      const parts = new Set([...changed].flatMap((one) => PARTS[one] ?? []));
      changed.clear();
      parts.forEach((show) => show());
    });
  }

  // Choosing a link

  function choose(key) {
    chosen = key;
    showTree();
    showLink();
  }

  function focusOn(number) {
    if (!cables.length) return;
    cables[focused].group.setAttribute("tabindex", "-1");
    focused = (number + cables.length) % cables.length;
    cables[focused].group.setAttribute("tabindex", "0");
    cables[focused].group.focus();
  }

  const cableAt = (target) => cables.findIndex(({ group }) => group === target.closest(".cable"));
  at("tree").addEventListener("click", (event) => {
    const number = cableAt(event.target);
    if (number < 0) return;
    focusOn(number);
    choose(keyOf(cables[number].cable));
  });
  at("tree").addEventListener("keydown", (event) => {
    const number = cableAt(event.target);
    if (number < 0) return;
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    if (event.key in steps) focusOn(number + steps[event.key]);
    else if (event.key === "Home") focusOn(0);
    else if (event.key === "End") focusOn(-1);
    else if (event.key === "Enter" || event.key === " ") choose(keyOf(cables[number].cable));
    else if (event.key === "Escape") choose(null);
    else return;
    event.preventDefault();
  });
  at("busiest").addEventListener("click", (event) => {
    const button = event.target.closest("[data-choose]");
    if (!button) return;
    choose(button.dataset.choose);
    at("close-link").focus();
  });
  at("close-link").addEventListener("click", () => {
    const number = cables.findIndex(({ cable }) => keyOf(cable) === chosen);
    choose(null);
    focusOn(number < 0 ? focused : number);
  });
  new ResizeObserver(() => {
    if (state.load && at("tree-box").clientWidth !== drawnWidth) draw();
  }).observe(at("tree-box"));

  // The token: from the form, or from the link that the controller prints, and nowhere else than in memory.

  let leave = () => {};
  let lostAt = null;

  function ask(text) {
    // An earlier stream would go on below the form.
    leave();
    state = empty();
    at("enter").hidden = false;
    at("live").hidden = true;
    say("headline", "The controller’s token is needed");
    say("connection", "");
    say("counts", "");
    say("refused", text);
    at("token").focus();
  }

  function enter(token) {
    if (!/^[\x21-\x7e]{16,1024}$/.test(token)) {
      ask("A token has 16 to 1024 printable characters, without spaces.");
      return;
    }
    leave();
    state = empty();
    at("enter").hidden = true;
    say("headline", "Connecting");
    leave = follow("ui/events", token, take, (kind, said) => {
      if (kind === "refused") {
        ask(`The controller refused this token: ${said}.`);
        return;
      }
      at("live").hidden = false;
      // One text for each outage: it is read aloud when it changes.
      lostAt = kind === "connected" ? null : lostAt ?? new Date().toLocaleTimeString("en-GB");
      say("connection", kind === "connected" ? "Connected." : kind === "full" ? `Waiting: ${said}.`
        : `Not connected since ${lostAt}; trying again. What is shown is old.`);
      at("connection").classList.toggle("bad", kind !== "connected");
    });
  }

  function begin() {
    const given = new URLSearchParams(location.hash.slice(1)).get("token");
    // Out of the address line and the browser's history.
    if (location.hash) history.replaceState(null, "", location.pathname);
    if (given) enter(given);
    else ask("");
  }

  at("enter").addEventListener("submit", (event) => {
    event.preventDefault();
    const given = at("token").value.trim();
    at("token").value = "";
    enter(given);
  });
  addEventListener("hashchange", begin);
  begin();
})();
