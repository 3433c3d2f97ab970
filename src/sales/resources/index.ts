import { countries } from './country.ts';
import { currencies } from './currency.ts';
import { entities } from './entity.ts';
import { entityStatuses } from './entity-status.ts';
import { orderStatuses } from './order-status.ts';
import { promotions } from './promotion.ts';
import { systemOptions } from './system-option.ts';
import { taxCodes } from './tax-code.ts';
import { unitsOfMeasure } from './unit-of-measure.ts';

/** The catalogue: every resource that `defineResource` defines. */
export const resources = [
  entityStatuses,
  countries,
  orderStatuses,
  unitsOfMeasure,
  systemOptions,
  promotions,
  currencies,
  taxCodes,
  entities,
];
