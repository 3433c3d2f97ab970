import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { root, startDemo } from './demo.ts';

// Makes the pictures of the README from a real run, on an embedded PostgreSQL in a temporary
// folder:
//   npm run -s readme:picture

/** Prepares what is shown. */
const prepared = ['bin/backoffice provision acme --name "Acme Ltd" --admin-email admin@acme.test'];
const shown = [
  'bin/backoffice list',
  'bin/backoffice delete acme --dry-run',
  'bin/backoffice delete acme --yes --reason "contract ended"',
  'bin/backoffice undelete acme --reason "it had not"',
  'bin/backoffice logs acme',
];

const themes = {
  light: { background: '#ffffff', border: '#d0d7de', text: '#1f2328', prompt: '#1a7f37' },
  dark: { background: '#0d1117', border: '#30363d', text: '#e6edf3', prompt: '#3fb950' },
};
const title = 'A terminal: a tenant is deleted after a dry run, and brought back';
const [width, lineHeight, characterWidth, margin] = [860, 19, 7.8, 20];
const maxColumns = Math.floor((width - 2 * margin) / characterWidth);

const demo = await startDemo(maxColumns);
try {
  for (const line of prepared) await demo.type(line);
  const lines: string[] = [];
  for (const line of shown) {
    lines.push(`$ ${line}`, ...(await demo.type(line)).trimEnd().split('\n'), '');
  }
  for (const [name, theme] of Object.entries(themes)) {
    await writeFile(
      join(root, `docs/pictures/terminal-${name}.svg`),
      picture(lines.slice(0, -1), theme),
    );
  }
} finally {
  await demo.stop();
}

/**
 * Returns a terminal with these lines as SVG.
 * @throws {Error} when a line is wider than the terminal
 */
function picture(lines: readonly string[], theme: (typeof themes)['light']): string {
  const height = lines.length * lineHeight + 2 * margin + 20;
  const texts = lines.map((line, index) => {
    if (line.length > maxColumns) throw new Error(`wider than ${maxColumns} columns: ${line}`);
    const y = margin + 32 + index * lineHeight;
    const typed = line.startsWith('$ ');
    const content = typed
      ? `<tspan fill="${theme.prompt}">$</tspan> ${escaped(line.slice(2))}`
      : escaped(line);
    return `  <text x="${margin}" y="${y}"${typed ? ' font-weight="bold"' : ''}>${content}</text>`;
  });
  const dots = ['#ff5f57', '#febc2e', '#28c840'].map(
    (color, index) =>
      `  <circle cx="${margin + 6 + index * 18}" cy="${margin - 2}" r="5.5" fill="${color}"/>`,
  );
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img" aria-labelledby="title">
  <title id="title">${title}</title>
  <rect x="0.5" y="0.5" width="${width - 1}" height="${height - 1}" rx="8" fill="${theme.background}" stroke="${theme.border}"/>
${dots.join('\n')}
  <g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="13" fill="${theme.text}">
${texts.join('\n')}
  </g>
</svg>
`;
}

/** Returns a text of SVG with spaces that stay, as browsers join others. */
function escaped(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll(' ', '\u00a0');
}
