/** Path segments that are not the id of any record. */
export const invalidIds = [
  ...['0', '-1', '01', '1e3', '1.0', '+1', '0x1', ' 1', '1 ', '１', 'NaN', 'null', 'undefined', "1'--"].map(
    encodeURIComponent,
  ),
  ...['9007199254740991', '9007199254740992', '9223372036854775807', '9223372036854775808', `1${'0'.repeat(30)}`],
  ...['2147483647', '2147483648', '%00', '1%00', '%zz', '%', '%E0%A4%A', '%ED%A0%80'],
];
