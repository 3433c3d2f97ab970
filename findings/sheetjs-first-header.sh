#!/usr/bin/env bash
# Guess: SheetJS reads a text with commas as CSV, whatever the first header is called.
# Found: a list whose first header begins with TABLE is taken for the format DIF, and its sheet is empty.
. "$(dirname "$0")/support.sh"

use_npm xlsx@0.18.5
cat > run.js <<'JS'
import XLSX from 'xlsx';

for (const header of ['Table', 'TABLE', 'TABLES']) {
  const book = XLSX.read(`${header},Seats\nA,4\nB,6\n`, { type: 'string' });
  const rows = XLSX.utils.sheet_to_json(book.Sheets[book.SheetNames[0]], { header: 1 });
  console.log(JSON.stringify(rows));
}
JS
expect node run.js <<'OUT'
[["Table","Seats"],["A",4],["B",6]]
[]
[]
OUT
