/* allreduce_mpi.c - MPI_Allreduce of fp16 vectors, to stand beside
 * `loco bench allreduce`.
 *
 * use: mpirun -np N allreduce_mpi ELEMENTS ROUNDS
 * MPI has no half type: the sum is an operation of our own over uint16_t that
 * converts, adds in fp32 and converts back with F16C. The vector is fp16
 * already, so no conversion of a whole vector is in the time, unlike ours.
 * In place, refilled before each round, a barrier before the clock starts, the
 * slowest rank counts. Rank 0 prints one JSON line.
 */
#include <immintrin.h>
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define WARMUP 3

static float widen(uint16_t h)
{
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}

static uint16_t narrow(float x)
{
    return (uint16_t)_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(x), 0), 0);
}

static void sum(void *in, void *inout, int *n, MPI_Datatype *type)
{
    const uint16_t *a = in;
    uint16_t *b = inout;
    int i = 0;

    (void)type;
    for (; i + 8 <= *n; i += 8) {
        __m128i *at = (__m128i *)(void *)(b + i);
        __m256 x = _mm256_cvtph_ps(
            _mm_loadu_si128((const __m128i *)(const void *)(a + i)));
        __m256 y = _mm256_cvtph_ps(_mm_loadu_si128(at));

        _mm_storeu_si128(at, _mm256_cvtps_ph(_mm256_add_ps(x, y), 0));
    }
    for (; i < *n; i++) {
        b[i] = narrow(widen(a[i]) + widen(b[i]));
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Sums that fp16 holds exactly for up to 16 ranks. */
static float element(int rank, long i)
{
    return (float)(rank + 1) + (float)(i & 7);
}

int main(int argc, char **argv)
{
    long elements, bad = 0;
    int rank, n, rounds;
    uint16_t *v;
    double *seconds;
    MPI_Op op;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    elements = argc > 2 ? strtol(argv[1], NULL, 10) : 0;
    rounds = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 0;
    v = malloc((size_t)elements * sizeof *v + 1);
    seconds = calloc((size_t)rounds + 1, sizeof *seconds);
    if (elements <= 0 || rounds <= 0 || v == NULL || seconds == NULL) {
        (void)fprintf(stderr, "use: allreduce_mpi ELEMENTS ROUNDS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Op_create(sum, 1, &op);
    for (int k = -WARMUP; k < rounds; k++) {
        double start, own, slowest;

        for (long i = 0; i < elements; i++) {
            v[i] = narrow(element(rank, i));
        }
        MPI_Barrier(MPI_COMM_WORLD);
        start = MPI_Wtime();
        MPI_Allreduce(MPI_IN_PLACE, v, (int)elements, MPI_UINT16_T, op,
                      MPI_COMM_WORLD);
        own = MPI_Wtime() - start;
        MPI_Reduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (k >= 0) {
            seconds[k] = slowest;
        }
        for (long i = 0; i < elements; i += 4099) {
            float want = (float)(n * (n + 1)) / 2 + (float)n * (float)(i & 7);

            bad += fabsf(widen(v[i]) - want) > 1e-3F * want;
        }
    }
    if (rank == 0) {
        qsort(seconds, (size_t)rounds, sizeof *seconds, by_value);
        (void)printf("{\"seconds_median\": %.9f, \"wrong\": %ld}\n",
                     seconds[rounds / 2], bad);
    }
    MPI_Finalize();
    return 0;
}
