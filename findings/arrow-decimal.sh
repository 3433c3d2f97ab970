#!/usr/bin/env bash
# Guess: a decimal of Arrow or Parquet has its scale and each of its digits in JavaScript.
# Found: apache-arrow prints the digits without the scale, 12345, and hyparquet makes a floating-point number of a Parquet decimal.
. "$(dirname "$0")/support.sh"

use_npm @duckdb/node-api@1.5.6-r.1 apache-arrow@21.2.0 hyparquet@1.31.5
cat > run.js <<'JS'
import { DuckDBInstance } from '@duckdb/node-api';
import { Decimal, tableFromArrays, vectorFromArray, makeData, makeVector } from 'apache-arrow';
import { asyncBufferFromFile, parquetReadObjects } from 'hyparquet';

const connection = await (await DuckDBInstance.create()).connect();
await connection.run("copy (select 1234567890123456.78::decimal(18,2) as amount, 0.10::decimal(18,2) as small) to 'amounts.parquet'");
const rows = await parquetReadObjects({ file: await asyncBufferFromFile('amounts.parquet') });
console.log('hyparquet', rows);
const words = new Uint32Array(4);
words[0] = 12345;
const vector = makeVector(makeData({ type: new Decimal(2, 10, 128), length: 1, data: words }));
console.log('apache-arrow', String(vector.get(0)), JSON.stringify(vector.toJSON()), `${vector.type}`);
process.exit();
JS
expect node run.js <<'OUT'
hyparquet [ { amount: 1234567890123456.8, small: 0.1 } ]
apache-arrow 12345 ["\"12345\""] Decimal[10e+2]
OUT
