/* Which edges of instrumented code were taken, for `tests.fuzz`; loaded before everything else.
 *
 * gcc calls the function below wherever code built with -fsanitize-coverage=trace-pc branches. An
 * edge is the place it came from and the place it is at. Two edges may share a byte, which loses an
 * input now and then and nothing else. */

#include <stdint.h>

enum { EDGES = 1 << 18 };

unsigned char fmware_edges[EDGES];
static __thread uintptr_t before;

void __sanitizer_cov_trace_pc(void)
{
    uintptr_t at = (uintptr_t)__builtin_return_address(0);
    uintptr_t edge = (at ^ before) * UINT64_C(0x9e3779b97f4a7c15) >> 46;
    fmware_edges[edge] = 1;
    before = at >> 1;
}
