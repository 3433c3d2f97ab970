// Runs in the browser: shows the progress of a run as it happens.
// Without it, the pages show the same, and load again while a command runs.
import { addCopyButtons } from '/docs/docs.js';

const intervalMs = 400;
const region = document.querySelector('#run:not([data-ended])');
if (region) await follow(region, document.querySelector('#run-status'));

/**
 * Asks for the page of a run again until the run has ended. The status, which is read out, changes at most every 5 s, and
 * says when the console no longer answers.
 */
async function follow(region, status) {
  const show = createDisplay(region);
  let spokenAt = 0;
  let shownAt = new Date();
  for (let isEnded = false; !isEnded; ) {
    await new Promise(resolve => setTimeout(resolve, intervalMs));
    const page = await load();
    const sent = page?.querySelector('#run');
    if (!sent) {
      const time = shownAt.toISOString().slice(11, 19);
      status.textContent = `The console does not answer. This is the state of ${time} UTC.`;
      spokenAt = 0;
      continue;
    }
    const { id } = document.activeElement ?? {};
    const hadFocus = region.contains(document.activeElement);
    show(sent);
    if (hadFocus && !region.contains(document.activeElement)) (document.getElementById(id) ?? status).focus();
    shownAt = new Date();
    isEnded = 'ended' in sent.dataset;
    if (isEnded || Date.now() - spokenAt > 5_000) {
      status.textContent = page.querySelector('#run-status').textContent;
      spokenAt = Date.now();
    }
  }
}

/** Returns the page as it is now; undefined when the console does not answer. */
async function load() {
  try {
    const response = await fetch(location.pathname);
    return new DOMParser().parseFromString(await response.text(), 'text/html');
  } catch {
    return undefined;
  }
}

/**
 * Returns a function that shows the children of an element in a region. What stays the same, or only grows, stays in
 * place, with its focus and its selection.
 */
function createDisplay(region) {
  let parts = []; // what was sent, and the element that shows it
  return element => {
    parts = [...element.children].map(sent => {
      const at = parts.findIndex(part => part.sent.isEqualNode(sent) || isGrown(part.sent, sent));
      if (at < 0) return { sent, live: document.importNode(sent, true) };
      const { sent: before, live } = parts.splice(0, at + 1)[at]; // those before it are gone: the order stays
      if (isGrown(before, sent)) live.append(sent.textContent.slice(before.textContent.length));
      return { sent, live };
    });
    const elements = parts.map(({ live }) => (live.matches('.code > *') ? live.parentElement : live));
    for (const element of [...region.children]) if (!elements.includes(element)) element.remove();
    elements.forEach((element, at) => {
      const place = region.children[at];
      if (element !== place) region.insertBefore(element, place ?? null);
    });
    addCopyButtons(region);
  };
}

/** Returns whether an element is a block of text that continues another one. */
function isGrown(before, after) {
  const isSame = after.tagName === 'PRE' && after.ariaLabel === before.ariaLabel && !after.firstElementChild;
  return isSame && before.textContent !== after.textContent && after.textContent.startsWith(before.textContent);
}
