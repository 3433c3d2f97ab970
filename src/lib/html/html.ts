/** Safe HTML: a template inserts it as it is, and escapes every other value. */
export interface Html {
  readonly html: string;
}

type Value = Html | string | number | undefined | readonly Value[];

/**
 * A template tag that escapes every value except HTML. The items of an array are joined;
 * undefined is empty.
 */
export function html(strings: TemplateStringsArray, ...values: Value[]): Html {
  return {
    html: strings
      .map((text, index) => text + (index < values.length ? render(values[index]) : ''))
      .join(''),
  };
}

function render(value: Value): string {
  if (value === undefined) return '';
  if (typeof value === 'object' && 'html' in value) return value.html;
  if (Array.isArray(value)) return value.map(render).join('');
  return escapeHtml(String(value));
}

/** Text for an element or for a quoted attribute. */
export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, character => `&#${character.charCodeAt(0)};`);
}

/**
 * A block of code. A long line scrolls sideways, so the keyboard must reach the block: it takes
 * the focus, and a screen reader announces its `label`.
 */
export function codeBlock(text: string, label: string): Html {
  return html`<pre tabindex="0" role="group" aria-label="${label}"><code>${text}</code></pre>`;
}

/**
 * A table that scrolls by itself. On a narrow screen, the style sheet shows the column names
 * from `data-label`.
 */
export function htmlTable(columns: readonly string[], rows: readonly (readonly Html[])[]): Html {
  const cell = (content: Html, index: number): Html =>
    html`<td data-label="${columns[index]}">${content}</td>`;
  const head = html`<thead><tr>${columns.map(name => html`<th>${name}</th>`)}</tr></thead>`;
  const body = html`<tbody>${rows.map(cells => html`<tr>${cells.map(cell)}</tr>`)}</tbody>`;
  return html`<div class="table"><table>${head}${body}</table></div>`;
}
