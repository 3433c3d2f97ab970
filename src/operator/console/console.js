// Runs in the browser: shows the progress of a run as it happens. Without this script, the
// pages show the same, and load again while a command runs.
import { addCopyButtons, nameScrollers } from '/docs/docs.js';

const intervalMs = 400;
const region = document.querySelector('#run:not([data-ended])');
if (region) await follow(region, document.querySelector('#run-status'));

/**
 * Loads the page of a run again until the run has ended. The status, which is read out, changes
 * at most every 5 s, and reports a console that does not answer.
 */
async function follow(region, status) {
  let parts = []; // each part as it was sent, and the element that shows it
  let spokenAt = 0;
  let shownAt = new Date();
  for (let isEnded = false; !isEnded; ) {
    await new Promise(resolve => setTimeout(resolve, intervalMs));
    const page = await load();
    const sent = page?.querySelector('#run');
    const time = shownAt.toISOString().slice(11, 19);
    let text = `The console does not answer. This is the state of ${time} UTC.`;
    if (sent) {
      const { id } = document.activeElement;
      const hadFocus = region.contains(document.activeElement);
      parts = show(region, parts, [...sent.children]);
      if (hadFocus && !region.contains(document.activeElement)) {
        (document.getElementById(id) ?? status).focus();
      }
      shownAt = new Date();
      isEnded = 'ended' in sent.dataset;
      text = page.querySelector('#run-status').textContent;
    }
    if (!sent || isEnded || Date.now() - spokenAt > 5_000) {
      status.textContent = text;
      spokenAt = sent ? Date.now() : 0;
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
 * Shows elements in a region. An element that stays the same, or only grows, stays in place,
 * with its focus and its selection.
 */
function show(region, before, elements) {
  const parts = elements.map((sent, at) => {
    const former = before[at];
    if (former?.sent.isEqualNode(sent)) return former;
    const grown = former && addedText(former.sent, sent);
    if (grown) former.live.append(grown);
    return { sent, live: grown ? former.live : document.importNode(sent, true) };
  });
  parts.forEach(({ live }, at) => {
    const [place, element] = [region.children[at], live.closest('.code') ?? live];
    if (!place) region.append(element);
    else if (place !== element) place.replaceWith(element);
  });
  while (region.children.length > parts.length) region.lastElementChild.remove();
  addCopyButtons(region);
  nameScrollers(region);
  return parts;
}

/**
 * Returns the text by which a block of text continues another one; undefined if it does not.
 */
function addedText(before, after) {
  const isSame =
    after.tagName === 'PRE' && after.ariaLabel === before.ariaLabel && !after.firstElementChild;
  return isSame && after.textContent.startsWith(before.textContent)
    ? after.textContent.slice(before.textContent.length)
    : undefined;
}
