// SPDX-License-Identifier: Apache-2.0
'use strict';

const $ = (id) => document.getElementById(id);
const byToken = document.documentElement.dataset.access === 'token';
const KEY = 'bothy.admin_token';
const narrow = matchMedia('(max-width: 640px)');
const manyConsumers = 40; // with more, the machines stay folded until they are asked for
let facts = null;
let history = {at: [], pending: {}};
let said = '';
const rows = new Map();

// What the states are called, and their signs: no state is told by its colour alone.
const states = {
  current: ['\u2713', 'up to date'], working: ['\u2192', 'working'], late: ['!', 'late'], stalled: ['\u2715', 'stalled'],
  failing: ['!', 'failing'], new: ['+', 'no cursor yet'], undeclared: ['\u2013', 'not declared'], unknown: ['?', 'not known'],
};
const urgent = {stalled: 0, failing: 1, late: 2, new: 3};
const identities = {
  same: 'Unchanged', restored: 'Restored, not finalized', unknown: 'Not known',
};

// --- words ---

const number = new Intl.NumberFormat('en');
const count = (n, one) => `${number.format(n)} ${one}${n === 1 ? '' : 's'}`;

function span(seconds) {
  if (seconds === null || seconds === undefined) return '-';
  const s = Math.max(0, seconds);
  if (s < 10) return `${s.toFixed(s < 0.05 ? 0 : 1)} s`;
  if (s < 60) return `${Math.floor(s)} s`;
  const units = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']];
  const first = units.findIndex(([size]) => s >= size);
  const [big, name] = units[first];
  const whole = Math.floor(s / big);
  if (first + 1 >= units.length) return `${whole} ${name}`;
  const [small, next] = units[first + 1];
  const rest = Math.floor((s - whole * big) / small);
  return rest ? `${whole} ${name} ${rest} ${next}` : `${whole} ${name}`;
}

const clock = (text) => new Date(text).toLocaleTimeString('en-GB');
const ago = (text) => {
  const s = (Date.now() - new Date(text)) / 1000;
  return s < 5 ? 'just now' : `${span(s)} ago`;
};

// --- drawing: a text or an attribute is touched only when it changed, which keeps the page and a screen reader quiet ---

function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function set(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

function badge(node, state) {
  const [sign, word] = states[state] || states.unknown;
  set(node, 'data-state', state);
  say(node, `${sign} ${word}`);
}

function shown(node, text) {
  node.hidden = !text;
  say(node, text || '');
}

function failureText(f) {
  if (!f) return '';
  const times = f.rounds > 1 ? `${count(f.rounds, 'round')} in a row` : 'one round';
  return f.over
    ? `Last failure: ${f.kind} (${f.end}, ${times}), ${ago(f.at)}; over since`
    : `Failing: ${f.kind} (${f.end}, ${times}), since ${clock(f.since)}`;
}

function curve(card, c) {
  const svg = card.querySelector('.curve svg');
  const ages = history.pending[c.name] || [];
  const from = history.at[0], to = history.at[history.at.length - 1];
  const known = ages.filter((a) => a !== null && a !== undefined);
  const highest = Math.max(1, ...known);
  const limit = c.pending_alert_after_seconds;
  const near = limit !== null && highest > limit / 2;
  const top = (near ? Math.max(highest, limit) : highest) * 1.1;
  const x = (at) => (to > from ? (at - from) / (to - from) * 240 : 240).toFixed(1);
  const y = (age) => (39 - age / top * 37).toFixed(1);
  let line = '', area = '', start = null, last = null;
  const close = () => { if (start !== null) area += `L${last} 40L${start} 40Z`; start = null; };
  history.at.forEach((at, n) => {
    const age = ages[n];
    if (age === null || age === undefined) { close(); return; }
    const p = `${x(at)} ${y(age)}`;
    line += (start === null ? 'M' : 'L') + p;
    area += (start === null ? 'M' : 'L') + p;
    if (start === null) start = x(at);
    last = x(at);
  });
  close();
  set(svg.querySelector('.ages'), 'd', line);
  set(svg.querySelector('.area'), 'd', area);
  set(svg.querySelector('.limit'), 'd', near ? `M0 ${y(limit)}H240` : '');
  const over = to > from ? `last ${span(to - from)}` : 'from now on';
  const words = known.length ? `highest ${span(Math.max(...known))}` : 'nothing known';
  say(card.querySelector('figcaption'), `pending age, ${over}: ${words}; late after ${span(limit)}`);
  set(svg, 'aria-label', `Curve of the pending age, ${over}: ${words}`);
}

function machine(card, c) {
  const box = card.querySelector('.machine');
  if (!card.querySelector('details').open) return;
  const shape = narrow.matches ? 'tall' : 'wide';
  if (box.dataset.shape !== shape) {
    box.replaceChildren($(shape).content.cloneNode(true));
    box.dataset.shape = shape;
    box.dataset.end = '';
  }
  const end = c.end || 'none';
  if (box.dataset.end === end) return;
  box.dataset.end = end;
  const now = c.end && box.querySelector(`[data-end="${CSS.escape(c.end)}"]`);
  const way = now ? now.dataset.path.split(' ').filter(Boolean) : [];
  for (const g of box.querySelectorAll('g')) {
    g.classList.toggle('way', way.includes(g.dataset.state));
    g.classList.toggle('now', g === now);
  }
  for (const p of box.querySelectorAll('path')) {
    const [a, b] = [p.dataset.from, p.dataset.to];
    const last = b === `end ${c.end}`;
    p.classList.toggle('way', Boolean(now) && (way.includes(a) || (a === 'any step' && last)) && (last || way.includes(b)));
  }
  set(box.querySelector('svg'), 'aria-label', c.end
    ? `State machine of ${c.name}. The newest round ${way.length ? `passed ${way.join(', ')} and ` : ''}ended ${c.end}.`
    : `State machine of ${c.name}. No round is known here.`);
}

function trail(card, c) {
  const node = card.querySelector('.trail');
  const now = c.end && $('wide').content.querySelector(`[data-end="${CSS.escape(c.end)}"]`);
  const way = now ? now.dataset.path.split(' ').filter(Boolean) : [];
  const when = c.ended_at ? `, ${ago(c.ended_at)}` : '';
  const before = c.end ? `Newest round: ${way.length ? way.join(' \u203a ') : 'any step'} \u203a ` : 'No round is known in this process';
  if (node.dataset.before !== before || node.dataset.end !== (c.end || '')) {
    node.dataset.before = before;
    node.dataset.end = c.end || '';
    const end = document.createElement('b');
    end.textContent = c.end || '';
    const time = document.createElement('span');
    node.replaceChildren(before, end, time);
  }
  say(node.lastElementChild, when);
}

function make(name) {
  const row = $('row').content.firstElementChild.cloneNode(true);
  const card = $('card').content.firstElementChild.cloneNode(true);
  card.id = `consumer-${name}`;
  card.querySelector('h3').id = `name-${name}`;
  card.setAttribute('aria-labelledby', `name-${name}`);
  row.querySelector('a').href = `#consumer-${name}`;
  card.querySelector('details').open = !narrow.matches && facts.consumers.length <= manyConsumers;
  card.querySelector('details').addEventListener('toggle', () => {
    const c = facts.consumers.find((one) => one.name === name);
    if (c) machine(card, c);
  });
  $('rows').append(row);
  $('cards').append(card);
  rows.set(name, {row, card});
}

function drawConsumer(c) {
  if (!rows.has(c.name)) make(c.name);
  const {row, card} = rows.get(c.name);
  const lag = c.lag === null ? '-' : number.format(c.lag);
  const age = c.pending_seconds === null ? '-' : c.lag === 0 ? '0 s' : span(c.pending_seconds);
  set(row, 'data-state', c.state);
  set(card, 'data-state', c.state);
  const cells = row.children;
  say(cells[0].firstElementChild, c.name);
  badge(cells[1].firstElementChild, c.state);
  const texts = [lag, age, span(c.pending_alert_after_seconds), c.cursor === null ? '-' : number.format(c.cursor),
    c.end ? `${c.end}, ${ago(c.ended_at)}` : '-', c.failure ? `${c.failure.kind}, ${c.failure.over ? ago(c.failure.at) : 'now'}` : '-'];
  texts.forEach((text, n) => say(cells[n + 2], text));
  say(card.querySelector('h3'), c.name);
  badge(card.querySelector('.badge'), c.state);
  say(card.querySelector('.kind'), c.kind);
  say(card.querySelector('.lag'), lag);
  say(card.querySelector('.age'), age);
  const failure = card.querySelector('.trouble');
  shown(failure, failureText(c.failure));
  failure.classList.toggle('open', Boolean(c.failure && !c.failure.over));
  curve(card, c);
  trail(card, c);
  machine(card, c);
}

function drawLog() {
  const {log, identity, process} = facts;
  const known = (n) => (n === null ? '-' : number.format(n));
  say($('head'), known(log.head));
  say($('partitions'), log.partitions === null ? '' : `in ${count(log.partitions, 'partition')}${log.partition_size ? ` of ${number.format(log.partition_size)}` : ''}`);
  say($('headroom'), known(log.headroom));
  say($('headroom-wanted'), `events; more is made below ${number.format(log.headroom_wanted)}`);
  say($('oldest'), log.oldest_seconds === null ? (log.head === 0 ? 'no events yet' : '-') : span(log.oldest_seconds));
  const held = log.retention_policy === 'hold' ? ', and until read' : '';
  say($('retention'), `kept for ${span(log.retention_seconds)}${held}${log.oldest_seq ? `; number ${number.format(log.oldest_seq)}` : ''}`);
  const part = log.oldest_seconds === null ? 0 : Math.min(100, log.oldest_seconds / log.retention_seconds * 100);
  set($('retained'), 'width', part > 0 ? `${Math.max(part, 1.5).toFixed(1)}%` : '0');
  say($('identity'), identities[identity.state] || identity.state);
  const at = identity.current || identity.stored;
  say($('database'), at ? `system ${at.system}, timeline ${at.timeline}` : 'this role may not read it, or it was never stored');
  say($('epoch'), identity.epoch || '-');
  shown($('environment'), process.environment);
  say($('role'), `role ${process.role}`);
  $('jobs').hidden = !facts.jobs_url;
  if (facts.jobs_url) set($('jobs'), 'href', facts.jobs_url);
  $('elsewhere').hidden = facts.rounds_here;
}

function verdict() {
  const {consumers, process, fresh, seen_at: seen} = facts;
  const are = (state) => consumers.filter((c) => c.state === state).map((c) => c.name);
  const list = (names) => (names.length > 5 ? `${names.slice(0, 5).join(', ')} and ${names.length - 5} more` : names.join(', '));
  let state = 'good', title = consumers.length === 1 ? 'The consumer keeps up' : `All ${consumers.length} consumers keep up`;
  const worst = [['stalled', 'bad', 'stalled'], ['failing', 'bad', 'failing'], ['late', 'warn', 'late'], ['new', 'warn', 'without a cursor']].find(([s]) => are(s).length);
  if (!fresh) {
    [state, title] = ['bad', 'Where the consumers stand is not known'];
  } else if (worst) {
    state = worst[1];
    title = `${are(worst[0]).length} of ${consumers.length} ${worst[2]}: ${list(are(worst[0]))}`;
  } else if (!process.ready) {
    [state, title] = ['warn', 'Not ready'];
  }
  const busy = are('working').length;
  const text = fresh ? (busy ? `${count(busy, 'consumer')} at work.` : '') : (seen ? `The database was last seen at ${clock(seen)}.` : 'The database has not been seen yet.');
  set($('verdict'), 'data-state', state);
  say($('verdict-title'), title);
  shown($('verdict-text'), text);
  $('reasons').hidden = process.ready;
  const reasons = process.reasons.map((r) => `${r.means} (${r.name})`);
  if ($('reasons').dataset.said !== reasons.join('\n')) {
    $('reasons').dataset.said = reasons.join('\n');
    $('reasons').replaceChildren(...reasons.map((r) => Object.assign(document.createElement('li'), {textContent: r})));
  }
  const news = [title, ...reasons].join('. ');
  if (said !== news) say($('news'), said = news);
  document.title = `${state === 'good' ? '' : '! '}${title} - Bothy`;
}

function draw() {
  if (!facts) return;
  $('page').hidden = false;
  drawLog();
  verdict();
  const names = new Set(facts.consumers.map((c) => c.name));
  for (const [name, {row, card}] of rows) {
    if (!names.has(name)) { row.remove(); card.remove(); rows.delete(name); }
  }
  facts.consumers.forEach(drawConsumer);
  arrange();
}

// arrange puts those in trouble first, and else keeps the order of the file. Rows are moved only when that changes.
function arrange() {
  const rank = (c) => (c.state in urgent ? urgent[c.state] : 9);
  const order = facts.consumers.slice().sort((a, b) => rank(a) - rank(b)).map((c) => c.name);
  if ($('rows').dataset.order === order.join()) return;
  $('rows').dataset.order = order.join();
  const focus = document.activeElement;
  for (const name of order) {
    $('rows').append(rows.get(name).row);
    $('cards').append(rows.get(name).card);
  }
  if (focus !== document.activeElement) focus.focus();
}

// --- asking ---

function live(how, text) {
  set($('live'), 'data-live', how);
  say($('live'), text);
}

const mostLooks = 120;

function take(next) {
  const moved = next.seen_at !== (facts && facts.seen_at);
  if (next.history) {
    history = next.history;
  } else if (moved) {
    history.at.push(Math.floor(new Date(next.seen_at) / 1000));
    for (const c of next.consumers) {
      const ages = history.pending[c.name] || (history.pending[c.name] = []);
      while (ages.length < history.at.length - 1) ages.push(null);
      ages.push(c.pending_seconds);
    }
    if (history.at.length > mostLooks) {
      history.at.shift();
      Object.values(history.pending).forEach((ages) => ages.shift());
    }
  }
  facts = next;
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// stored is the token of this tab. A browser can refuse to keep it; then it lives as long as the page.
let memory = '';
function stored(value) {
  if (value !== undefined) memory = value;
  try {
    if (value !== undefined) sessionStorage.setItem(KEY, value);
    return sessionStorage.getItem(KEY) || '';
  } catch {
    return memory;
  }
}

function askForToken(error) {
  $('gate').hidden = false;
  $('page').hidden = true;
  say($('gate-error'), error);
  live('no', 'not connected');
  $('token').focus();
  return new Promise((done) => {
    $('gate-form').addEventListener('submit', (event) => {
      event.preventDefault();
      stored($('token').value.trim());
      $('token').value = '';
      $('gate').hidden = true;
      say($('gate-error'), '');
      done();
    }, {once: true});
  });
}

const visible = () => document.hidden && new Promise((done) => document.addEventListener('visibilitychange', done, {once: true}));

async function ask() {
  const headers = byToken ? {Authorization: `Bearer ${stored()}`} : {};
  const url = `status/facts?after=${encodeURIComponent(facts ? facts.revision : '')}`;
  const answer = await fetch(url, {headers, cache: 'no-store', redirect: 'error', credentials: 'omit'});
  switch (answer.status) {
    case 200:
      take(await answer.json());
      live('yes', 'live');
      draw();
      return 250;
    case 204:
      live('yes', 'live');
      return 1000;
    case 401:
      await askForToken(stored() ? (await answer.text()).trim() : '');
      return 0;
    case 429: {
      const wait = Number(answer.headers.get('Retry-After')) || 5;
      live('lost', `too many wrong tokens: next try in ${wait} s`);
      return wait * 1000;
    }
    default:
      throw new Error(`answered ${answer.status}: ${(await answer.text()).trim()}`);
  }
}

async function follow() {
  let wait = 0;
  if (byToken && !stored()) await askForToken('');
  for (;;) {
    await visible();
    try {
      await pause(await ask());
      wait = 0;
    } catch (error) {
      live('lost', facts && facts.seen_at ? `no answer; shown is ${clock(facts.seen_at)}` : `no answer: ${error.message}`);
      wait = Math.min(10000, (wait || 500) * 2);
      await pause(wait);
    }
  }
}

narrow.addEventListener('change', draw);
setInterval(() => { if (facts && !document.hidden) facts.consumers.forEach((c) => { const r = rows.get(c.name); if (r) trail(r.card, c); }); }, 5000);
follow();
