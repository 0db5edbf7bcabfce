/* What a decode step of Llama's kind computes between two products, in fp32: norms, attention, the gate of the MLP.
 *
 * Each is small, so that calling torch for its parts takes longer than computing them.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { BLOCK = 64 };
static const int64_t SMALL = 1 << 16; /* multiplications below which one thread is as fast as many */

/* e to the power of x <= 0, with an error below 5e-6 of it; a number that is none stays none. */
static inline float exponential(float x) {
    x = x < -87 ? -87 : x;
    float n = __builtin_rintf(x * 1.44269504f), r = x - n * 0.693147181f;
    float value = 1 + r * (1 + r * (0.5f + r * (1.f / 6 + r * (1.f / 24 + r * (1.f / 120 + r * (1.f / 720))))));
    int32_t bits = ((int32_t)n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return value * power;
}

static inline float dot(const float *a, const float *b, int64_t k) {
    float sum = 0;
    for (int64_t i = 0; i < k; i++) sum += a[i] * b[i];
    return sum;
}

static inline void normalise(const float *x, const float *weight, float epsilon, float *y, int64_t k) {
    float factor = 1 / sqrtf(dot(x, x, k) / k + epsilon);
    for (int64_t i = 0; i < k; i++) y[i] = x[i] * factor * weight[i];
}

/* y = RMS norm of each row of x [m][k]. What is to be added to x, unless it is NULL, is added before, and stays. */
void paddock_norm(float *x, const float *added, const float *weight, float *y, int64_t m, int64_t k, float epsilon) {
    for (int64_t row = 0; row < m; row++, x += k, y += k) {
        if (added)
            for (int64_t i = 0; i < k; i++) x[i] += added[row * k + i];
        normalise(x, weight, epsilon, y, k);
    }
}

/* y[m][k] = SiLU(gate) * up, of rows that are a stride apart. */
void paddock_gate(const float *gate, const float *up, float *y, int64_t m, int64_t k, int64_t gate_stride,
                  int64_t up_stride) {
    for (int64_t row = 0; row < m; row++, gate += gate_stride, up += up_stride, y += k)
        for (int64_t i = 0; i < k; i++) {
            float e = exponential(-fabsf(gate[i]));
            y[i] = gate[i] * (gate[i] < 0 ? e : 1) / (1 + e) * up[i];
        }
}

typedef struct {
    const float *q, *k, *v;             /* [rows][heads][dim], of k and v [rows][kv_heads][dim]; rows a stride apart */
    const float *q_norm, *k_norm;       /* [dim] or NULL: weights of an RMS norm of each head */
    const float *cosines, *sines;       /* [length][dim], the sines of the first half negated */
    const int64_t *positions;           /* [rows]: where the new key and value belong */
    float *keys, *values;               /* [rows][kv_heads][length][dim] */
    float *y;                           /* [rows][heads][dim] */
    int64_t q_stride, k_stride, v_stride, rows, heads, kv_heads, length, dim;
    float scale, epsilon;
} Attention;

/* A head with the rotary embedding of a position: its two halves are one complex number each. */
static inline void rotate(const Attention *a, const float *head, const float *norm, int64_t position, float *result) {
    const int64_t half = a->dim / 2;
    const float *cosines = a->cosines + position * a->dim, *sines = a->sines + position * a->dim;
    float x[a->dim];
    if (norm)
        normalise(head, norm, a->epsilon, x, a->dim);
    else
        memcpy(x, head, sizeof x);
    for (int64_t i = 0; i < half; i++) {
        result[i] = x[i] * cosines[i] + x[i + half] * sines[i];
        result[i + half] = x[i + half] * cosines[i + half] + x[i] * sines[i + half];
    }
}

/* Keep a row's new key and value. */
static void keep(const Attention *a, int64_t row, int64_t kv_head) {
    const int64_t position = a->positions[row], place = (row * a->kv_heads + kv_head) * a->length + position;
    rotate(a, a->k + row * a->k_stride + kv_head * a->dim, a->k_norm, position, a->keys + place * a->dim);
    memcpy(a->values + place * a->dim, a->v + row * a->v_stride + kv_head * a->dim, a->dim * sizeof *a->values);
}

/* Heads from the first one on that share a key, over a block of places at a time: a softmax whose largest score grows
 * as it goes. */
static void attend(const Attention *a, int64_t row, int64_t first, int64_t group) {
    const int64_t dim = a->dim, position = a->positions[row], kv_head = first / (a->heads / a->kv_heads);
    const float *keys = a->keys + (row * a->kv_heads + kv_head) * a->length * dim;
    const float *values = a->values + (row * a->kv_heads + kv_head) * a->length * dim;
    float *y = a->y + (row * a->heads + first) * dim;
    float q[group][dim], largest[group], total[group], weights[BLOCK];
    for (int64_t h = 0; h < group; h++) {
        rotate(a, a->q + row * a->q_stride + (first + h) * dim, a->q_norm, position, q[h]);
        largest[h] = -INFINITY, total[h] = 0;
    }
    memset(y, 0, group * dim * sizeof *y);
    for (int64_t start = 0; start <= position; start += BLOCK) {
        const int64_t count = position + 1 - start < BLOCK ? position + 1 - start : BLOCK;
        for (int64_t h = 0; h < group; h++) {
            float before = largest[h], *sum = y + h * dim;
            for (int64_t j = 0; j < count; j++) {
                weights[j] = a->scale * dot(q[h], keys + (start + j) * dim, dim);
                largest[h] = weights[j] > largest[h] ? weights[j] : largest[h];
            }
            const float correction = start ? exponential(before - largest[h]) : 1;
            total[h] *= correction;
            for (int64_t i = 0; i < dim; i++) sum[i] *= correction;
            for (int64_t j = 0; j < count; j++) {
                weights[j] = exponential(weights[j] - largest[h]);
                total[h] += weights[j];
            }
            for (int64_t j = 0; j < count; j++)
                for (int64_t i = 0; i < dim; i++) sum[i] += weights[j] * values[(start + j) * dim + i];
        }
    }
    for (int64_t h = 0; h < group; h++)
        for (int64_t i = 0; i < dim; i++) y[h * dim + i] /= total[h];
}

/* Keep each row's key and value, and compute its attention over the places up to its position. */
void paddock_attend(const Attention *a, int64_t end, int threads) {
    const int64_t kept = a->rows * a->kv_heads;
    for (int64_t part = 0; part < kept; part++) keep(a, part / a->kv_heads, part % a->kv_heads);
    /* Together the heads that share a key read it once; with more threads than that each is on its own. */
    const int64_t group = kept < threads ? 1 : a->heads / a->kv_heads, parts = a->rows * a->heads / group;
#pragma omp parallel for num_threads(threads) schedule(static) if (a->rows * a->heads * end * a->dim > SMALL)
    for (int64_t part = 0; part < parts; part++)
        attend(a, part * group / a->heads, part * group % a->heads, group);
}
