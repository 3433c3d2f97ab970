// Runs in the browser, on every page: the search of the header.
import { create } from './element.js';

/** The words of readers, each with the words of the pages for the same thing. */
const readersWords = {
  'page by page': 'pagination paging paginate offset',
  'how many': 'total count',
  reset: 'forgot forgotten lost recover',
  'log in': 'sign signin authenticate authentication',
  logout: 'sign signout',
  register: 'sign signup',
  invite: 'add',
  create: 'add insert',
  patch: 'partial update edit modify',
  delete: 'remove destroy',
  restore: 'undo disaster',
  undelete: 'undo recycle trash',
  duplicate: 'conflict unique exists 409',
  rate_limited: 'throttling throttle quota',
  filter: 'where query',
  sort: 'order ordering',
  csv: 'excel spreadsheet',
  import: 'bulk upload',
  export: 'download',
  idempotency: 'retry retries twice',
  'if-match': 'concurrency optimistic locking version',
  tenant: 'company account organisation organization multi',
  permission: 'authorisation authorization access right rights',
  openapi: 'swagger postman',
  typescript: 'sdk client javascript',
  'keep a copy': 'new records since poll polling sync synchronize synchronise replicate mirror',
  stream: 'sse realtime live',
  upgrade: 'downtime',
};
const synonyms = Map.groupBy(
  Object.entries(readersWords).flatMap(([word, others]) =>
    others.split(' ').map(other => [other, word]),
  ),
  ([other]) => other,
);

addSearch();

/**
 * The search of the header. It loads its index when it first gets the focus, and needs no
 * server after that.
 */
function addSearch() {
  const input = document.querySelector('#search-text');
  const results = document.querySelector('#search-results');
  const [status, list] = results.children;
  let index;
  document.querySelector('#search').hidden = false;
  const load = () => {
    index ??= fetch('/docs/search.json').then(response => response.json());
    return index;
  };
  input.addEventListener('focus', load);
  input.addEventListener('input', show);
  document.addEventListener('keydown', event => {
    if (event.key === '/' && !event.target.closest('input, textarea, select')) {
      event.preventDefault();
      input.focus();
    } else if (event.key === 'Escape') {
      close();
    } else if (results.contains(event.target) || event.target === input) {
      move(event);
    }
  });
  document.addEventListener('click', ({ target }) => {
    if (!results.parentElement.contains(target) || target.closest('#search-results a')) close();
  });

  async function show() {
    const terms = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (terms.length === 0) return close();
    const found = rank(await load(), terms);
    if (terms.join() !== input.value.toLowerCase().split(/\s+/).filter(Boolean).join()) return;
    status.textContent = found.length === 0 ? 'No page has these words.' : `${found.length} found`;
    list.replaceChildren(...found.slice(0, 12).map(toItem));
    results.hidden = false;
  }

  function close() {
    if (results.contains(document.activeElement)) input.focus();
    results.hidden = true;
    status.textContent = '';
  }

  /** Arrow keys move between the input and the results. */
  function move(event) {
    const stops = [input, ...list.querySelectorAll('a')];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || results.hidden) return;
    event.preventDefault();
    stops[stops.indexOf(document.activeElement) + step]?.focus();
  }
}

function toItem([title, address, place, shown]) {
  const heading = create('strong', { textContent: title });
  const where = create('span', { textContent: place });
  const link = create('a', {
    href: address,
    children: [heading, where, create('small', { textContent: shown })],
  });
  return create('li', { children: [link] });
}

/**
 * Returns the entries that have every term, or a synonym of it; entries with the term in the
 * title or the address come first.
 */
function rank(entries, terms) {
  const scored = entries.map(entry => {
    const texts = entry.map(text => text.toLowerCase());
    const scores = terms.map(term => {
      const ofSynonyms = (synonyms.get(term) ?? []).map(([, word]) => ofReaders(word, texts));
      return Math.max(scoreOf(term, texts), ...ofSynonyms);
    });
    return { entry, score: scores.includes(0) ? 0 : scores.reduce((sum, score) => sum + score) };
  });
  return scored
    .filter(({ score }) => score > 0)
    .sort((a, b) => b.score - a.score)
    .map(({ entry }) => entry);
}

/** A title with the words of the pages for a reader's word comes before one with that word. */
function ofReaders(word, texts) {
  const score = scoreOf(word, texts);
  return score === weights[0] ? score + 0.5 : score - 0.5;
}

/** The weight of a word in each part of an entry; within another word it counts half. */
const weights = [8, 0, 2, 3, 1];

function scoreOf(word, texts) {
  const scores = texts.map((text, part) => {
    const at = text.indexOf(word);
    return at < 0 ? 0 : weights[part] * (at > 0 && /[\p{L}\p{N}]/u.test(text[at - 1]) ? 0.5 : 1);
  });
  return Math.max(...scores);
}
