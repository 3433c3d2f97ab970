import { FilledCells, type ImportWarning } from './filled-cells.ts';

/** The import that a client asks for. */
export interface ImportOrder {
  readonly resource: string;
  readonly mode: 'create' | 'upsert';
  readonly dryRun: boolean;
  readonly atomic: boolean;
  /** `own` when the ids in the file are those of this tenant. */
  readonly ids?: 'own' | undefined;
}

/** An error of a row, without the number of the row. */
export interface RowError {
  /** Empty when the error belongs to no single field. */
  readonly Field: string;
  readonly Code: string;
  readonly Reason: string;
}

/** One error of a file, under the names of the API. */
export interface ImportError extends RowError {
  /** The line of the file on which the row begins, from 1. */
  readonly Line: number;
  /** The row that a spreadsheet shows, from 1. */
  readonly Row: number;
  /** The cell as a spreadsheet names it, such as `C7`; empty when no single cell is wrong. */
  readonly Cell: string;
  /** The text of that cell, at most 100 characters. */
  readonly Value: string;
}

/** The number of rows by their outcome, and the first errors. */
export interface ImportCounts {
  rows: number;
  created: number;
  updated: number;
  unchanged: number;
  refused: number;
  errors: ImportError[];
  readonly filled: FilledCells;
}

/** The result of an import, under the names of the API. */
export interface ImportReport {
  readonly Resource: string;
  readonly Mode: 'create' | 'upsert';
  readonly DryRun: boolean;
  readonly Atomic: boolean;
  readonly Applied: boolean;
  readonly Rows: number;
  readonly Created: number;
  readonly Updated: number;
  readonly Unchanged: number;
  readonly Refused: number;
  readonly Errors: readonly ImportError[];
  /** Those of a dry run. */
  readonly Warnings: readonly ImportWarning[];
}

/** Returns the counts of a file of which nothing has been read. */
export function noCounts(): ImportCounts {
  return {
    rows: 0,
    created: 0,
    updated: 0,
    unchanged: 0,
    refused: 0,
    errors: [],
    filled: new FilledCells(),
  };
}

/** The place of a row in its file. */
interface RowPlace {
  readonly line: number;
  readonly row: number;
}

const firstRow: RowPlace = { line: 1, row: 1 };

/** An error of a whole file, or of the part of it that cannot be read, from a place on. */
export function fileError(
  Code: string,
  Reason: string,
  { line, row }: RowPlace = firstRow,
): ImportError {
  return { Line: line, Row: row, Cell: '', Field: '', Value: '', Code, Reason };
}

/** @param isApplied whether the changes of the file are made */
export function reportOf(
  { resource, mode, dryRun, atomic }: ImportOrder,
  { rows, created, updated, unchanged, refused, errors, filled }: ImportCounts,
  isApplied: boolean,
): ImportReport {
  return {
    Resource: resource,
    Mode: mode,
    DryRun: dryRun,
    Atomic: atomic,
    Applied: isApplied,
    Rows: rows,
    Created: created,
    Updated: updated,
    Unchanged: unchanged,
    // The header is a row, too.
    Refused: errors.length > 0 ? Math.max(1, refused) : refused,
    Errors: errors,
    Warnings: dryRun ? filled.warnings() : [],
  };
}
