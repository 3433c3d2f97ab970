import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { root } from '../support/command-line.ts';
import { useLogin, useWorld } from '../support/world.ts';

const run = promisify(execFile);

/** A program that reads an export, and writes a file to import. */
interface Program {
  /** The texts of docs/guide/import.md that `careful` has. */
  readonly printed: readonly string[];
  /** Fails where the program, or its version, is not installed. */
  readonly installed: readonly string[];
  readonly file: string;
  readonly command: readonly string[];
  /** `csv` or `json`: what it reads. */
  readonly reads: 'csv' | 'json';
  /** The program as the page says. Its arguments are the file that it reads, and the other. */
  readonly careful: string;
  /** The program with its defaults. */
  readonly plain: string;
}

const python = {
  installed: ['/usr/bin/python3', '-c', 'import pandas'],
  file: 'change.py',
  command: ['/usr/bin/python3'],
};
const pandas = (read: string): string => `import sys
from pandas import read_csv, read_json
file = sys.argv[1]
${read}.to_csv(sys.argv[2], index=False)
`;
const shell = { file: 'change.sh', command: ['sh', '-e'] };
const sqlite = (options: string): string => `
db="$(dirname "$2")/records.db"
rm -f "$db"
sqlite-utils insert ${options} "$db" records "$1" --csv
sqlite-utils rows "$db" records --csv > "$2"
`;

const programs: Readonly<Record<string, Program>> = {
  'readr of R': {
    printed: ['read_csv(file, col_types = cols(.default = "c"), na = "")', 'write_csv(…, na = "")'],
    installed: ['Rscript', '-e', 'library(readr)'],
    file: 'change.R',
    command: ['Rscript'],
    reads: 'csv',
    careful: `library(readr)
file <- commandArgs(TRUE)[1]
records <- read_csv(file, col_types = cols(.default = "c"), na = "")
write_csv(records, commandArgs(TRUE)[2], na = "")
`,
    plain: `library(readr)
write_csv(read_csv(commandArgs(TRUE)[1]), commandArgs(TRUE)[2])
`,
  },
  'data.table of R': {
    printed: [
      'records <- fread(file, colClasses = "character", na.strings = NULL)',
      `records[, names(records) := lapply(.SD, gsub, pattern = '""', replacement = '"', fixed = TRUE)]`,
    ],
    installed: ['Rscript', '-e', 'library(data.table)'],
    file: 'change.R',
    command: ['Rscript'],
    reads: 'csv',
    careful: `library(data.table)
file <- commandArgs(TRUE)[1]
records <- fread(file, colClasses = "character", na.strings = NULL)
records[, names(records) := lapply(.SD, gsub, pattern = '""', replacement = '"', fixed = TRUE)]
fwrite(records, commandArgs(TRUE)[2])
`,
    plain: `library(data.table)
fwrite(fread(commandArgs(TRUE)[1]), commandArgs(TRUE)[2])
`,
  },
  'pandas, of CSV': {
    ...python,
    printed: ['read_csv(file, dtype=str, keep_default_na=False)'],
    reads: 'csv',
    careful: pandas('read_csv(file, dtype=str, keep_default_na=False)'),
    plain: pandas('read_csv(file)'),
  },
  'pandas, of JSON': {
    ...python,
    printed: ['read_json(file, dtype=False, convert_dates=False)'],
    reads: 'json',
    careful: pandas('read_json(file, dtype=False, convert_dates=False)'),
    plain: pandas('read_json(file)'),
  },
  csvkit: {
    ...shell,
    printed: ['csvsort --blanks -I'],
    installed: ['csvsort', '--version'],
    reads: 'csv',
    careful: 'csvsort --blanks -I "$1" > "$2"',
    plain: 'csvsort "$1" > "$2"',
  },
  'sqlite-utils': {
    ...shell,
    printed: ['sqlite-utils insert --no-detect-types'],
    installed: ['sh', '-c', 'sqlite-utils insert --help | grep -q -e --no-detect-types'],
    reads: 'csv',
    careful: sqlite('--no-detect-types'),
    plain: sqlite(''),
  },
};

/** The resources that are carried, with the paths of their lists. */
const carried = { Promotion: '/api/v1/Promotions', UnitOfMeasure: '/api/v1/UnitsOfMeasure' };

interface Report {
  readonly Rows: number;
  readonly Unchanged: number;
  readonly Errors: readonly object[];
  readonly Warnings: readonly { Field: string; Value: string }[];
}

describe('drill: programs that read an export and write a file to import', () => {
  const world = useWorld();
  const acme = useLogin(world, 'acme');
  let folder: string;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'backoffice-programs-'));
    for (const Code of ['007', '00042', '12']) {
      await acme.post('/api/v1/UnitsOfMeasure', { Code, Name: `Unit ${Code}` });
    }
    for (const PromoCode of ['NA', 'P2', 'P3']) {
      const { status, body } = await acme.post('/api/v1/Promotions', {
        PromoCode,
        Name: `Offer of "${PromoCode}", à la carte`,
        DiscountType: 'Percentage',
        DiscountValue: 2.5,
        StartsAt: '2026-01-01T00:00:00.123Z',
        EndsAt: PromoCode === 'NA' ? '2027-01-01T00:00:00.999Z' : null,
      });
      expect(status, JSON.stringify(body)).to.equal(201);
    }
  });
  after(() => rm(folder, { recursive: true }));

  /** Lets a program carry each list, and returns the reports of dry runs, by their resources. */
  async function carry({ reads, file, command }: Program, text: string) {
    const [start = '', ...args] = command;
    const script = join(folder, file);
    await writeFile(script, text);

    const reports: Record<string, Report> = {};
    for (const [resource, path] of Object.entries(carried)) {
      const [from, to] = [join(folder, `from.${reads}`), join(folder, 'to.csv')];
      const exported = await acme.get(path, reads === 'csv' ? { Accept: 'text/csv' } : {});
      await writeFile(from, reads === 'csv' ? exported.body : JSON.stringify(exported.body));

      await run(start, [...args, script, from, to]);
      const { status, body } = await acme.post(
        `/api/v1/Imports?resource=${resource}&mode=upsert&ids=own&dryRun=true&atomic=false`,
        await readFile(to, 'utf8'),
        { 'Content-Type': 'text/csv' },
      );
      expect(status, JSON.stringify(body)).to.equal(200);
      reports[resource] = body;
    }
    return reports;
  }

  const isUnchanged = ({ Rows, Unchanged }: Report): boolean => Rows === 3 && Unchanged === 3;

  for (const [name, program] of Object.entries(programs)) {
    it(`${name} changes no cell as the guide says, and some with its defaults`, async function () {
      const [check = '', ...args] = program.installed;
      const found = await run(check, args).catch(() => undefined);
      if (!found) {
        console.log(`${name} is not installed, and left out`);
        return this.skip();
      }
      const page = await readFile(join(root, 'docs/guide/import.md'), 'utf8');
      for (const text of program.printed) expect(page).to.include(text);

      const careful = await carry(program, program.careful);
      const plain = await carry(program, program.plain);

      for (const [resource, report] of Object.entries(careful)) {
        expect(isUnchanged(report), `${resource} ${JSON.stringify(report)}`).to.equal(true);
        expect(report.Warnings).to.deep.equal([]);
      }
      for (const [resource, { Unchanged, Errors, Warnings }] of Object.entries(plain)) {
        console.log(`      ${resource} with its defaults:`, {
          Unchanged,
          Errors: Errors.length,
          Warnings,
        });
      }
      expect(Object.values(plain).every(isUnchanged)).to.equal(false);
    });
  }

  it('a dry run warns of the texts that readr writes into empty cells', async function () {
    const program = programs['readr of R'];
    const found = await run('Rscript', ['-e', 'library(readr)']).catch(() => undefined);
    if (!program || !found) return this.skip();

    const { Promotion } = await carry(program, program.plain);

    expect(Promotion?.Warnings).to.have.length(1);
    expect(Promotion?.Warnings[0]).to.include({ Field: 'Description', Value: 'NA' });
  });
});
