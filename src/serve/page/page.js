'use strict';
const byId = id => document.getElementById(id);
const make = (name, text, of = {}) => Object.assign(document.createElement(name), of, text === undefined ? {} : {textContent: text});
const isObject = value => value !== null && typeof value === 'object';
const TIMES = ['time', 'known'];

// A value as text; times are in seconds since 1970.
function shown(name, value) {
  if (TIMES.includes(name) && Number.isFinite(value)) return new Date(value * 1000).toISOString().replace('.000', '');
  if (typeof value === 'number') return String(Number(value.toPrecision(6)));
  return isObject(value) ? JSON.stringify(value) : String(value);
}

function cell(name, value) {
  const td = make('td');
  if (value === undefined || value === null) return td;
  if (name === 'node' || name === 'name') {
    td.append(make('a', value, {href: '#' + encodeURIComponent(value)}));
  } else {
    td.textContent = shown(name, value);
  }
  return td;
}

function table(caption, rows, columns) {
  const part = make('div', undefined, {className: 'scroll'});
  const table = make('table');
  table.append(make('caption', caption));
  const head = make('tr');
  columns.forEach(column => head.append(make('th', column, {scope: 'col'})));
  table.append(make('thead'));
  table.tHead.append(head);
  const body = make('tbody');
  for (const row of rows) {
    const line = make('tr');
    columns.forEach(column => line.append(cell(column, row[column])));
    body.append(line);
  }
  table.append(body);
  part.append(table);
  return part;
}

function facts(of) {
  const list = make('dl');
  for (const [name, value] of Object.entries(of).filter(([, value]) => !isObject(value))) {
    const pair = make('div');
    pair.append(make('dt', name.replaceAll('_', ' ')), make('dd', shown(name, value)));
    if (name === 'decision' && value) pair.lastChild.className = 'positive';
    list.append(pair);
  }
  return list;
}

// Whatever the server knows of a node: single values, and a table of each list.
function describe(view) {
  const parts = [facts(view)];
  for (const [name, value] of Object.entries(view)) {
    const rows = Array.isArray(value) ? value.filter(isObject) : [];
    if (rows.length) {
      parts.push(table(name, rows, [...new Set(rows.flatMap(Object.keys))]));
    } else if (isObject(value) && !Array.isArray(value) && Object.keys(value).length) {
      parts.push(make('h3', name), facts(value));
    }
  }
  return parts;
}

function explain(scored) {
  const {reasons, drawing, ...figures} = scored;
  const parts = [facts(figures)];
  if (drawing) {
    // An image runs nothing, whatever is in its texts.
    const source = 'data:image/svg+xml;charset=utf-8,' + encodeURIComponent(drawing);
    parts.push(make('img', undefined, {src: source, alt: 'Neighbourhood of ' + scored.target}));
  }
  if (reasons?.neighbours?.length) {
    parts.push(table('neighbours that count', reasons.neighbours, ['name', 'relation', 'contribution', 'score']));
  }
  if (reasons?.lines?.length) {
    parts.push(table('columns that count', reasons.lines.slice(0, 12), ['column', 'block', 'value', 'contribution']));
  }
  return parts;
}

async function ask(path, options = {}) {
  const token = byId('token').value;
  const headers = token ? {Authorization: 'Bearer ' + token} : {};
  const answer = await fetch(path, {...options, headers: {...headers, ...options.headers}});
  const body = await answer.json();
  if (answer.ok) return body;
  const {message, found, help} = body.error;
  throw new Error([message, found, help].filter(Boolean).join('; '));
}

async function look() {
  let node;
  try {
    node = decodeURIComponent(location.hash.slice(1));
  } catch {
    node = location.hash.slice(1);
  }
  if (!node) return;
  byId('node').value = node;
  const parts = [byId('scored'), byId('known')];
  const said = byId('said');
  parts.forEach(part => part.replaceChildren());
  said.textContent = 'asking …';
  const body = JSON.stringify({targets: [node], explain: true, drawing: true});
  const post = {method: 'POST', body, headers: {'Content-Type': 'application/json'}};
  const answers = await Promise.allSettled([
    ask('v1/score', post).then(answer => explain(answer.scores[0])),
    ask('v1/nodes/' + encodeURIComponent(node) + '?neighbours=50').then(describe),
  ]);
  answers.forEach((answer, at) => parts[at].replaceChildren(...(answer.value ?? [])));
  byId('answer').hidden = answers.every(answer => answer.reason);
  const reasons = answers.map(answer => answer.reason?.message).filter(Boolean);
  said.textContent = [...new Set(reasons)].join(' · ');
}

byId('ask').addEventListener('submit', event => {
  event.preventDefault();
  const hash = '#' + encodeURIComponent(byId('node').value.trim());
  if (location.hash === hash) look();
  else location.hash = hash;
});
addEventListener('hashchange', look);
look();
