/* ln x of a positive, normal double, within 2 ulp: plain arithmetic, so that every processor and every
 * C library give the same bits. x = 2^e m with m from sqrt 1/2 to sqrt 2; ln m = 2 artanh s with
 * s = (m - 1) / (m + 1), |s| < 0.172, by its series to s^21. */
#ifndef HEADSTART_LOGARITHM_H
#define HEADSTART_LOGARITHM_H

#include <stdint.h>
#include <string.h>

static inline double ln_of(double x)
{
    const double high = 0x1.62e42fefa3800p-1, low = 0x1.ef35793c76730p-45; /* ln 2 in two parts */
    uint64_t bits;
    memcpy(&bits, &x, 8);
    /* Counted so that the mantissa begins at sqrt 1/2. */
    const int64_t e = (int64_t)(bits - 0x3fe6a09e667f3bcdull) >> 52;
    bits -= (uint64_t)e << 52;
    double m;
    memcpy(&m, &bits, 8);
    const double s = (m - 1.0) / (m + 1.0), z = s * s;
    double sum = 1.0 / 21.0;
    for (int k = 19; k >= 3; k -= 2) sum = sum * z + 1.0 / (double)k;
    return (double)e * high + (2.0 * s + (2.0 * s * (z * sum) + (double)e * low));
}

#endif
