import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { root } from '../../support/command-line.ts';

/**
 * The lines of a section of a page, as a person finds them there: in blocks, one after the
 * other.
 */
export class PrintedLines {
  readonly blocks: readonly string[];

  /** @param language of the blocks, as the page marks them: of a shell, or of a file */
  constructor(page: string, heading: string, language = 'sh') {
    const section = page.split(`\n## ${heading}\n`)[1]?.split('\n## ')[0] ?? '';
    const marked = new RegExp(`^( *)\`\`\`${language}\\n([\\s\\S]*?)^ *\`\`\`$`, 'gm');
    const fenced = [...section.matchAll(marked)];

    this.blocks = fenced.map(([, indent = '', text = '']) =>
      text.replaceAll(new RegExp(`^${indent}`, 'gm'), ''),
    );
  }

  /**
   * Returns the one block that has a text.
   * @throws unless exactly one has it: the page says something else by now
   */
  block(text: string): string {
    const found = this.blocks.filter(block => block.includes(text));
    if (found.length !== 1) throw new Error(`${found.length} blocks of the page have "${text}"`);

    return found[0] ?? '';
  }
}

/** @param name of a page in docs/, without its suffix */
export function readPage(name: string): Promise<string> {
  return readFile(join(root, 'docs', `${name}.md`), 'utf8');
}
