// Runs in the browser: copy buttons, wide tables, tabs and sections of other pages. Without
// this script, the pages show the same texts.
import { create } from './element.js';

addCopyButtons(document);
nameScrollers(document);
addTabs();
openLinkedSection();
showPresentPage();

/** Opens a section of another page, such as that of an alert, if this page links to it. */
function openLinkedSection() {
  const { hash } = location;
  if (hash === '' || document.getElementById(hash.slice(1))) return;
  const link = [...document.querySelectorAll('main a')].find(each => each.hash === hash);
  if (link) location.replace(link.href);
}

/**
 * Scrolls the list of pages to the present one: on a phone, the list is one line, which
 * scrolls.
 */
function showPresentPage() {
  const link = document.querySelector('.contents [aria-current]');
  if (link) link.closest('ul').scrollLeft = link.offsetLeft - link.closest('ul').offsetLeft;
}

/** A button above each block of code below a root that copies its text. */
export function addCopyButtons(root) {
  for (const block of root.querySelectorAll('main pre:not(.code > *)')) {
    const label = block.getAttribute('aria-label').replace(/^Code: /, '');
    const button = create('button', { type: 'button', className: 'copy', textContent: 'Copy' });
    const status = create('span', { role: 'status', className: 'hidden' });
    button.append(create('span', { className: 'hidden', textContent: ` ${label}` }));
    button.addEventListener('click', async () => {
      await copy(block.textContent);
      button.firstChild.textContent = 'Copied';
      status.textContent = 'Copied';
      setTimeout(() => {
        button.firstChild.textContent = 'Copy';
        status.textContent = '';
      }, 2_000);
    });
    const box = create('div', { className: 'code' });
    block.replaceWith(box);
    box.append(block, button, status);
  }
}

/**
 * Lets the keyboard scroll each table below a root that is wider than its place, and gives the
 * table a name for screen readers. Other tables are not in the order of the Tab key.
 */
export function nameScrollers(root) {
  const observer = new ResizeObserver(entries => {
    for (const { target } of entries) name(target);
  });

  for (const table of root.querySelectorAll('main .table > table')) {
    observer.observe(table);
    observer.observe(table.parentElement);
  }

  function name(target) {
    const box = target.closest('.table');

    if (box.scrollWidth > box.clientWidth) {
      const heading =
        box.querySelector('caption') ?? box.closest('section, main').querySelector('h1, h2, h3');

      box.tabIndex = 0;
      box.role = 'group';
      box.ariaLabel = heading?.textContent ?? 'Table';
    } else {
      for (const each of ['tabindex', 'role', 'aria-label']) box.removeAttribute(each);
    }
  }
}

/** Copies a text. Browsers offer `navigator.clipboard` only over HTTPS and on localhost. */
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = create('textarea', { value: text });
  document.body.append(area);
  area.select();
  document.execCommand('copy');
  area.remove();
}

/**
 * The examples of a call as tabs (WAI-ARIA APG). The choice holds for all of them, and is
 * remembered.
 */
function addTabs() {
  const groups = [...document.querySelectorAll('.calls')].map(toTabs);
  if (groups.length > 0) choose(localStorage.getItem('example') ?? '');

  function toTabs(group) {
    const panels = [...group.querySelectorAll('figure')];
    const tabs = panels.map((panel, index) => {
      const title = panel.querySelector('figcaption').textContent;
      panel.querySelector('figcaption').remove();
      panel.id = `${group.closest('section').id}-${index}`;
      panel.role = 'tabpanel';
      const tab = create('button', {
        type: 'button',
        role: 'tab',
        id: `${panel.id}-tab`,
        textContent: title,
      });
      tab.setAttribute('aria-controls', panel.id);
      panel.setAttribute('aria-labelledby', tab.id);
      tab.addEventListener('click', () => keepInPlace(tab, () => choose(title)));
      tab.addEventListener('keydown', ({ key }) => {
        const step = { ArrowLeft: -1, ArrowRight: 1 }[key];
        if (!step) return;
        const next = tabs[(index + step + tabs.length) % tabs.length];
        next.click();
        next.focus();
      });
      return tab;
    });
    const list = create('div', { role: 'tablist', className: 'tabs', children: tabs });
    list.setAttribute('aria-label', 'Example');
    group.prepend(list);
    return { tabs, panels };
  }

  function choose(title) {
    if (title) localStorage.setItem('example', title);
    for (const { tabs, panels } of groups) {
      const found = tabs.findIndex(tab => tab.textContent === title);
      const chosen = Math.max(0, found);
      tabs.forEach((tab, index) => {
        tab.setAttribute('aria-selected', index === chosen);
        tab.tabIndex = index === chosen ? 0 : -1;
        panels[index].hidden = index !== chosen;
      });
    }
  }
}

/**
 * Makes a change, and scrolls so that an element stays at its place although the length of the
 * page above it changes.
 */
function keepInPlace(element, change) {
  const before = element.getBoundingClientRect().top;
  change();
  scrollBy({ top: element.getBoundingClientRect().top - before, behavior: 'instant' });
}
