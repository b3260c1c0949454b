/* emu_cublas.cpp - cuBLASLt's calls by plain loops, column-major as there. */
#include <cublasLt.h>
#include <set>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/mma.cuh"
#include "tests/emu/emu.h"
#include "tests/emu/emu_runtime.h"

struct emu_handle {
    int none;
};
struct emu_desc {
    cublasOperation_t a, b;
};
struct emu_layout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t ld;
};
struct emu_preference {
    int none;
};

/* What is not destroyed stays the library's to the end (emu_memory.cpp). */
static std::set<void *> &objects = *new std::set<void *>;

template <class T> static T *make(void)
{
    T *p = (T *)calloc(1, sizeof *p);

    objects.insert(p);
    return p;
}

static void drop(void *p)
{
    objects.erase(p);
    free(p);
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    EMU_ENTER;

    *handle = make<struct emu_handle>();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    EMU_ENTER;

    drop(handle);
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void)
{
    return 130000;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc,
                                        cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    EMU_ENTER;

    *desc = make<struct emu_desc>();
    return compute == CUBLAS_COMPUTE_32F && scale == CUDA_R_32F
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    EMU_ENTER;

    drop(desc);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                               cublasLtMatmulDescAttributes_t name,
                               const void *value,
                               size_t bytes)
{
    EMU_ENTER;

    cublasOperation_t *to =
        name == CUBLASLT_MATMUL_DESC_TRANSA ? &desc->a : &desc->b;

    if (bytes != sizeof *to) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout,
                                          cudaDataType_t type,
                                          uint64_t rows,
                                          uint64_t columns,
                                          int64_t ld)
{
    EMU_ENTER;

    if (ld < (int64_t)rows) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    *layout = make<struct emu_layout>();
    **layout = {type, rows, columns, ld};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    EMU_ENTER;

    drop(layout);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    EMU_ENTER;

    *preference = make<struct emu_preference>();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    EMU_ENTER;

    drop(preference);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                     cublasLtMatmulPreferenceAttributes_t name,
                                     const void *value,
                                     size_t bytes)
{
    EMU_ENTER;

    size_t want = name == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? 8 : 4;

    (void)preference;
    (void)value;
    return bytes == want ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t
cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                               cublasLtMatmulDesc_t desc,
                               cublasLtMatrixLayout_t a,
                               cublasLtMatrixLayout_t b,
                               cublasLtMatrixLayout_t c,
                               cublasLtMatrixLayout_t d,
                               cublasLtMatmulPreference_t preference,
                               int wanted,
                               cublasLtMatmulHeuristicResult_t *results,
                               int *got)
{
    EMU_ENTER;

    bool ta = desc->a == CUBLAS_OP_T;
    bool tb = desc->b == CUBLAS_OP_T;
    bool fits = (ta ? a->columns : a->rows) == d->rows &&
                (tb ? b->rows : b->columns) == d->columns &&
                (ta ? a->rows : a->columns) == (tb ? b->columns : b->rows);

    (void)handle;
    (void)c;
    (void)preference;
    if (!fits) {
        *got = 0;
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    *got = emu_control.no_algorithm != 0 ? 0 : wanted < 2 ? wanted : 2;
    memset(results, 0, (size_t)wanted * sizeof *results);
    return CUBLAS_STATUS_SUCCESS;
}

static float element(const void *p, cudaDataType_t type, int64_t i)
{
    if (type == CUDA_R_32F) {
        return ((const float *)p)[i];
    }
    return __uint_as_float((uint32_t)((const uint16_t *)p)[i] << 16);
}

/* One product with all that the call named, as it was then. */
struct product {
    struct emu_desc desc;
    struct emu_layout la, lb, ld;
    float alpha, beta;
    const void *a, *b, *c;
    void *d;
};

static void multiply(const struct product &p)
{
    bool ta = p.desc.a == CUBLAS_OP_T;
    bool tb = p.desc.b == CUBLAS_OP_T;
    int64_t k = (int64_t)(ta ? p.la.rows : p.la.columns);

    for (int64_t j = 0; j < (int64_t)p.ld.columns; j++) {
        for (int64_t i = 0; i < (int64_t)p.ld.rows; i++) {
            int64_t at = j * p.ld.ld + i;
            float sum = 0;

            for (int64_t l = 0; l < k; l++) {
                sum += element(p.a, p.la.type,
                               ta ? i * p.la.ld + l : l * p.la.ld + i) *
                       element(p.b, p.lb.type,
                               tb ? l * p.lb.ld + j : j * p.lb.ld + l);
            }
            sum *= p.alpha;
            sum += p.beta != 0 ? p.beta * element(p.c, p.ld.type, at) : 0;
            if (p.ld.type == CUDA_R_32F) {
                ((float *)p.d)[at] = sum;
            } else {
                ((uint16_t *)p.d)[at] = (uint16_t)pack_bf16(sum, 0);
            }
        }
    }
}

/* What they take is the driver's, and stays taken. */
static bool load(void)
{
    uint64_t bytes = emu_control.product_loads;
    size_t left, total;

    (void)cudaMemGetInfo(&left, &total);
    if (left < bytes) {
        return false;
    }
    emu_control.used_of[emu_device()] += bytes;
    emu_control.product_loads = 0;
    return true;
}

/* All rows begin where tensor cores like it: a GPU may have no fast product of
 * others, or none. */
static bool rows_begin_well(const void *p, const struct emu_layout &l)
{
    int64_t bytes = l.ld * (l.type == CUDA_R_32F ? 4 : 2);

    return (((uintptr_t)p | (uintptr_t)bytes) & 15) == 0;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle,
                              cublasLtMatmulDesc_t desc,
                              const void *alpha,
                              const void *a,
                              cublasLtMatrixLayout_t la,
                              const void *b,
                              cublasLtMatrixLayout_t lb,
                              const void *beta,
                              const void *c,
                              cublasLtMatrixLayout_t lc,
                              void *d,
                              cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t *algo,
                              void *workspace,
                              size_t workspace_bytes,
                              cudaStream_t stream)
{
    EMU_ENTER;

    struct product p = {
        *desc, *la, *lb, *ld, *(const float *)alpha, *(const float *)beta,
        a,     b,   c,   d};

    (void)handle;
    (void)lc;
    (void)algo;
    (void)workspace;
    (void)workspace_bytes;
    emu_control.products++;
    emu_control.unaligned += !rows_begin_well(a, *la) ||
                             !rows_begin_well(b, *lb) ||
                             !rows_begin_well(d, *ld);
    if (emu_sticky() != cudaSuccess) {
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    if (emu_control.product_loads > 0 && !load()) {
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    emu_queue(stream, [=] { multiply(p); });
    return CUBLAS_STATUS_SUCCESS;
}

void *emu_cublas_symbol(const char *name)
{
#define ROW(call)                                                              \
    {                                                                          \
#call, (void *)call                                                    \
    }
    static const struct {
        const char *name;
        void *call;
    } rows[] = {ROW(cublasLtCreate),
                ROW(cublasLtDestroy),
                ROW(cublasLtGetVersion),
                ROW(cublasLtMatmul),
                ROW(cublasLtMatmulAlgoGetHeuristic),
                ROW(cublasLtMatmulDescCreate),
                ROW(cublasLtMatmulDescDestroy),
                ROW(cublasLtMatmulDescSetAttribute),
                ROW(cublasLtMatrixLayoutCreate),
                ROW(cublasLtMatrixLayoutDestroy),
                ROW(cublasLtMatmulPreferenceCreate),
                ROW(cublasLtMatmulPreferenceDestroy),
                ROW(cublasLtMatmulPreferenceSetAttribute)};

    for (const auto &row : rows) {
        if (strcmp(row.name, name) == 0) {
            return row.call;
        }
    }
    return NULL;
}
