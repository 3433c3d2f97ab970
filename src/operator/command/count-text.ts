/** Returns a number with its noun: `1 tenant`, `2 tenants`. */
export function countText(number: number, one: string, many = `${one}s`): string {
  return `${number} ${number === 1 ? one : many}`;
}
