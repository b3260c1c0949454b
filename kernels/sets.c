/* sets.c - see sets.h: what this processor and its system have. */
#include "kernels/sets.h"

#include <string.h>

#include "kernels/cpu/kernels.h"

static const struct kernel_set sets[] = {
#define SET(name, fp32, fp32_ran, bf16, bf16_ran)                              \
    {#name, fp32, bf16, SET_RAN_##fp32_ran, SET_RAN_##bf16_ran},
#include "kernels/sets.def"
#undef SET
};

#define SET_COUNT (sizeof sets / sizeof sets[0])

static bool always(void)
{
    return true;
}

#ifdef LOCO_ISA_X86
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

/* By Intel's specification one with AVX10 has these bits where its vectors are
 * 512 bits wide; with 256 bits it has none of them, and is one with AVX2. */
static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bw");
}

static bool has_avx512_bf16(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512bf16");
}

#ifdef LOCO_ISA_AMX
#define AMX_BITS  (1U << 22 | 1U << 24) /* BF16, TILE: CPUID 7.0, edx */
#define TILE_BITS (1U << 17 | 1U << 18) /* XCR0: the system saves them */

#define ARCH_REQ_XCOMP_PERM 0x1023 /* Linux 5.16 on */
#define XFEATURE_XTILEDATA  18

static bool has_amx(void)
{
    unsigned a, b, c, d;

    if (!has_avx512_bf16() || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 ||
        (d & AMX_BITS) != AMX_BITS) {
        return false;
    }
    __asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return (a & TILE_BITS) == TILE_BITS &&
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) ==
               0;
}
#endif
#endif

#ifdef LOCO_ISA_NEON
#ifdef __linux__
#include <sys/auxv.h>

#define HWCAP2_BFLOAT16 (1UL << 14) /* HWCAP2_BF16 of newer headers */

static bool has_neon_bf16(void)
{
    return (getauxval(AT_HWCAP2) & HWCAP2_BFLOAT16) != 0;
}
#else
#define has_neon_bf16 NULL
#endif
#endif

/* What is in this build. */
static const struct built {
    const char *name;
    const struct cpu_kernels *cpu;
    bool (*has)(void), (*has_bf16)(void);
} built[] = {
#ifdef LOCO_ISA_AMX
    {"amx", &cpu_fast_amx, has_amx, always},
#endif
#ifdef LOCO_ISA_X86
    {"avx512", &cpu_fast_avx512, has_avx512, has_avx512_bf16},
    {"avx2", &cpu_fast_avx2, has_avx2, NULL},
#endif
#ifdef LOCO_ISA_NEON
    {"neon", &cpu_fast_neon, always, has_neon_bf16},
#else
    {"baseline", &cpu_fast_baseline, always, NULL},
#endif
};

static const struct built *find(const struct kernel_set *set)
{
    for (size_t i = 0; i < sizeof built / sizeof built[0]; i++) {
        if (strcmp(built[i].name, set->name) == 0) {
            return &built[i];
        }
    }
    return NULL;
}

const struct kernel_set *kernel_sets(size_t *n)
{
    *n = SET_COUNT;
    return sets;
}

bool kernel_set_here(const struct kernel_set *set)
{
    const struct built *b = find(set);

    return b != NULL && b->has();
}

bool kernel_set_bf16_here(const struct kernel_set *set)
{
    const struct built *b = find(set);

    return b != NULL && b->cpu->matmul_bf16 != NULL && b->has_bf16 != NULL &&
           b->has() && b->has_bf16();
}

const struct cpu_kernels *kernel_set_cpu(const struct kernel_set *set)
{
    return find(set)->cpu;
}

static bool has_run(const struct kernel_set *set)
{
    return set->fp32_ran != SET_RAN_model && set->bf16_ran != SET_RAN_model;
}

const struct kernel_set *
kernel_set_auto(bool (*has)(const struct kernel_set *set))
{
    for (size_t i = 0; i < SET_COUNT; i++) {
        if (has_run(&sets[i]) && has(&sets[i])) {
            return &sets[i];
        }
    }
    return NULL;
}

const struct kernel_set *kernel_set_named(const char *name)
{
    if (strcmp(name, "auto") == 0) {
        return kernel_set_auto(kernel_set_here);
    }
    for (size_t i = 0; i < SET_COUNT; i++) {
        if (strcmp(sets[i].name, name) == 0 && kernel_set_here(&sets[i])) {
            return &sets[i];
        }
    }
    return NULL;
}
