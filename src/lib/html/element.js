/**
 * Creates an element.
 * @param properties of the element; `children` are appended
 */
export function create(name, { children = [], ...properties } = {}) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}
