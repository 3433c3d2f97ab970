#!/usr/bin/env bash
# Guess: a code that one spreadsheet library writes is the one that it reads.
# Found: `_x0041_` is an escape of the format that neither escapes: SheetJS reads AAB from both files, ExcelJS from its own alone.
. "$(dirname "$0")/support.sh"

use_npm xlsx@0.18.5 exceljs@4.4.0
cat > run.js <<'JS'
import Excel from 'exceljs';
import XLSX from 'xlsx';

const code = 'A_x0041_B';
const book = XLSX.utils.book_new();
XLSX.utils.book_append_sheet(book, XLSX.utils.aoa_to_sheet([[code]]), 'Codes');
XLSX.writeFile(book, 'sheetjs.xlsx');
const written = new Excel.Workbook();
written.addWorksheet('Codes').addRow([code]);
await written.xlsx.writeFile('exceljs.xlsx');

for (const file of ['sheetjs.xlsx', 'exceljs.xlsx']) {
  const read = new Excel.Workbook();
  await read.xlsx.readFile(file);
  console.log(file, XLSX.readFile(file).Sheets.Codes.A1.v, read.worksheets[0].getCell('A1').value);
}
JS
expect node run.js <<'OUT'
sheetjs.xlsx AAB A_x0041_B
exceljs.xlsx AAB AAB
OUT
