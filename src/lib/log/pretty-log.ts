import { styleText } from 'node:util';

type Fields = Readonly<Record<string, unknown>>;

const levels: Readonly<Record<number, Parameters<typeof styleText>[0]>> = {
  40: 'yellow',
  50: 'red',
  60: ['red', 'bold'],
};
/** Fields that are not shown: they are constant on a terminal, or part of the text. */
const hidden = ['level', 'time', 'pid', 'hostname', 'msg', 'method', 'route', 'status', 'ms'];

/**
 * Formats a line of the log for a person at a terminal: time, what happened, and the other
 * fields.
 * @param line one JSON object; any other text is returned unchanged
 */
export function prettyLine(line: string): string {
  let fields: Fields;
  try {
    fields = JSON.parse(line);
  } catch {
    return line;
  }

  const style = levels[Number(fields.level)];
  const time = new Date(Number(fields.time)).toTimeString().slice(0, 8);
  const text =
    fields.method === undefined ? String(fields.msg ?? fields.event) : requestText(fields);
  const others = Object.entries(fields).filter(
    ([name, value]) =>
      !hidden.includes(name) && value !== null && !(name === 'event' && value === text),
  );
  const details = others.map(([name, value]) => `${name}=${valueText(value)}`).join(' ');

  return `${styled('dim', time)} ${style ? styled(style, text) : text}${details && ` ${styled('dim', details)}`}\n`;
}

function requestText({ method, route, status, ms }: Fields): string {
  const style = Number(status) >= 500 ? 'red' : Number(status) >= 400 ? 'yellow' : 'green';
  return `${method} ${route ?? '(no route)'} ${styled(style, String(status))} ${ms} ms`;
}

/**
 * Returns the text of a value. A text with spaces or control characters is quoted, as JSON, so
 * that it cannot send a command to the terminal.
 */
function valueText(value: unknown): string {
  return typeof value === 'string' && /^[!-~]+$/.test(value) ? value : JSON.stringify(value);
}

/** Without colour when NO_COLOR is set. */
function styled(style: Parameters<typeof styleText>[0], text: string): string {
  return styleText(style, text, { stream: process.stdout });
}
