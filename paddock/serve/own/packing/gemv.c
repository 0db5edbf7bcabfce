/* Products of a weight matrix and a few rows, as a decode step has them: bound by reading the weights once.
 *
 * torch's own kernels read bf16 rows at half of the memory's bandwidth on many processors, and none multiplies packed
 * int4 by int8. Each function computes y[m][n] = sum over k of w[n][k] * x[m][k]. Weights have n rows of k columns; k is
 * a multiple of 64.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#endif

enum { GROUP = 64 };

static inline float from_bf16(uint16_t value) {
    uint32_t bits = (uint32_t)value << 16;
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

#if defined(__AVX2__) && defined(__FMA__)
static inline float sum8(__m256 v) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}

static inline __m256 bf16x8(const uint16_t *w) {
    __m128i bits = _mm_loadu_si128((const __m128i *)w);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

/* Sums of products of unsigned and signed bytes, eight times four of them. */
static inline __m256i dot_u8_s8(__m256i u, __m256i s) {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(u, s), _mm256_set1_epi16(1));
}
#endif

static inline float dot_bf16(const uint16_t *w, const float *x, int64_t k) {
#if defined(__AVX2__) && defined(__FMA__)
    __m256 a = _mm256_setzero_ps(), b = a, c = a, d = a;
    for (int64_t i = 0; i < k; i += 32) {
        _mm_prefetch((const char *)(w + i + 512), _MM_HINT_T0);
        a = _mm256_fmadd_ps(bf16x8(w + i), _mm256_loadu_ps(x + i), a);
        b = _mm256_fmadd_ps(bf16x8(w + i + 8), _mm256_loadu_ps(x + i + 8), b);
        c = _mm256_fmadd_ps(bf16x8(w + i + 16), _mm256_loadu_ps(x + i + 16), c);
        d = _mm256_fmadd_ps(bf16x8(w + i + 24), _mm256_loadu_ps(x + i + 24), d);
    }
    return sum8(_mm256_add_ps(_mm256_add_ps(a, b), _mm256_add_ps(c, d)));
#else
    float sum = 0;
    for (int64_t i = 0; i < k; i++) sum += from_bf16(w[i]) * x[i];
    return sum;
#endif
}

/* Activations are int8 with one scale a group, as in the functions below. */
static inline float dot_int8(const int8_t *w, const int8_t *x, const float *x_scale, int64_t k) {
#if defined(__AVX2__) && defined(__FMA__)
    __m256 sum = _mm256_setzero_ps();
    for (int64_t g = 0; g < k / GROUP; g++, w += GROUP, x += GROUP) {
        _mm_prefetch((const char *)(w + 1024), _MM_HINT_T0);
        __m256i w0 = _mm256_loadu_si256((const __m256i *)w), w1 = _mm256_loadu_si256((const __m256i *)(w + 32));
        __m256i x0 = _mm256_loadu_si256((const __m256i *)x), x1 = _mm256_loadu_si256((const __m256i *)(x + 32));
        __m256i dots = _mm256_add_epi32(dot_u8_s8(_mm256_sign_epi8(w0, w0), _mm256_sign_epi8(x0, w0)),
                                        dot_u8_s8(_mm256_sign_epi8(w1, w1), _mm256_sign_epi8(x1, w1)));
        sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots), _mm256_set1_ps(x_scale[g]), sum);
    }
    return sum8(sum);
#else
    float sum = 0;
    for (int64_t g = 0; g < k / GROUP; g++, w += GROUP, x += GROUP) {
        int32_t dot = 0;
        for (int i = 0; i < GROUP; i++) dot += w[i] * x[i];
        sum += dot * x_scale[g];
    }
    return sum;
#endif
}

#if defined(__AVX2__) && defined(__FMA__)
/* Sums of products of one group, in eight parts. */
static inline __m256 dots_int4(const uint8_t *w, const int8_t *x) {
    const __m256i low = _mm256_set1_epi8(15);
    _mm_prefetch((const char *)(w + 2048), _MM_HINT_T0);
    __m256i bytes = _mm256_loadu_si256((const __m256i *)w);
    __m256i x0 = _mm256_loadu_si256((const __m256i *)x), x1 = _mm256_loadu_si256((const __m256i *)(x + 32));
    __m256i high = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), low);
    __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(_mm256_and_si256(bytes, low), x0),
                                     _mm256_maddubs_epi16(high, x1));
    return _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
#endif

/* A byte holds columns i (low) and i + 32 (high) of its group; the group's scale and zero follow each other. */
static inline float dot_int4(const uint8_t *w, const uint16_t *scale_zero, const int8_t *x, const float *x_scale,
                             const float *x_sum, int64_t k) {
    const int64_t groups = k / GROUP;
    int64_t g = 0;
    float zeros = 0;
#if defined(__AVX2__) && defined(__FMA__)
    __m256 sum = _mm256_setzero_ps(), other = sum, zeros8 = sum;
    for (; g + 8 <= groups; g += 8) { /* the scales of one group after the other would take longer than its products */
        __m256i pairs = _mm256_loadu_si256((const __m256i *)(scale_zero + 2 * g));
        __m256 zero = _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32((int)0xffff0000u)));
        __m256 scale = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
        float scales[8];
        _mm256_storeu_ps(scales, _mm256_mul_ps(scale, _mm256_loadu_ps(x_scale + g)));
        zeros8 = _mm256_fmadd_ps(zero, _mm256_loadu_ps(x_sum + g), zeros8);
        for (int i = 0; i < 8; i += 2, w += GROUP, x += 2 * GROUP) {
            sum = _mm256_fmadd_ps(dots_int4(w, x), _mm256_broadcast_ss(scales + i), sum);
            other = _mm256_fmadd_ps(dots_int4(w + GROUP / 2, x + GROUP), _mm256_broadcast_ss(scales + i + 1), other);
        }
    }
    for (; g < groups; g++, w += GROUP / 2, x += GROUP) {
        sum = _mm256_fmadd_ps(dots_int4(w, x), _mm256_set1_ps(from_bf16(scale_zero[2 * g]) * x_scale[g]), sum);
        zeros += from_bf16(scale_zero[2 * g + 1]) * x_sum[g];
    }
    return sum8(_mm256_add_ps(_mm256_add_ps(sum, other), zeros8)) + zeros;
#else
    float sum = 0;
    for (; g < groups; g++, w += GROUP / 2, x += GROUP) {
        int32_t dot = 0;
        for (int i = 0; i < GROUP / 2; i++) dot += (w[i] & 15) * x[i] + (w[i] >> 4) * x[i + GROUP / 2];
        sum += dot * from_bf16(scale_zero[2 * g]) * x_scale[g];
        zeros += from_bf16(scale_zero[2 * g + 1]) * x_sum[g];
    }
    return sum + zeros;
#endif
}

/* Activations as int8 with one scale a group, and the sum of each group as it was rounded: with the exact sum the
 * weights' zeros would not cancel what rounding does to the rest. A number that is none makes the scale none, so that
 * the products are none too; a comparison alone would pass it over. */
static void quantise(const float *x, int8_t *q, float *scale, float *sum, int64_t m, int64_t k) {
    for (int64_t g = 0; g < m * (k / GROUP); g++, x += GROUP, q += GROUP) {
        float largest = 0;
        int invalid = 0;
        for (int i = 0; i < GROUP; i++) {
            float size = x[i] < 0 ? -x[i] : x[i];
            largest = size > largest ? size : largest;
            invalid |= x[i] != x[i];
        }
        largest = invalid ? NAN : largest;
        float inverse = largest > 0 ? 127 / largest : 0;
        int32_t total = 0;
        for (int i = 0; i < GROUP; i++) {
            q[i] = (int8_t)__builtin_lrintf(x[i] * inverse);
            total += q[i];
        }
        scale[g] = largest / 127;
        sum[g] = total * scale[g];
    }
}

void paddock_bf16(const uint16_t *w, const float *x, float *y, int64_t m, int64_t n, int64_t k, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < n; row++)
        for (int64_t i = 0; i < m; i++) y[i * n + row] = dot_bf16(w + row * k, x + i * k, k);
}

/* `room` is for the activations as int8, and for their scales and sums: m * (k + 2 * k / 64 * 4) bytes. */
void paddock_int8(const int8_t *w, const float *scale, const float *x, int8_t *room, float *y, int64_t m, int64_t n,
                  int64_t k, int threads) {
    const int64_t groups = k / GROUP;
    float *x_scale = (float *)(room + m * k), *x_sum = x_scale + m * groups;
    quantise(x, room, x_scale, x_sum, m, k);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < n; row++)
        for (int64_t i = 0; i < m; i++)
            y[i * n + row] = scale[row] * dot_int8(w + row * k, room + i * k, x_scale + i * groups, k);
}

void paddock_int4(const uint8_t *w, const uint16_t *scale_zero, const float *x, int8_t *room, float *y, int64_t m,
                  int64_t n, int64_t k, int threads) {
    const int64_t groups = k / GROUP;
    float *x_scale = (float *)(room + m * k), *x_sum = x_scale + m * groups;
    quantise(x, room, x_scale, x_sum, m, k);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < n; row++)
        for (int64_t i = 0; i < m; i++)
            y[i * n + row] = dot_int4(w + row * (k / 2), scale_zero + row * groups * 2, room + i * k,
                                      x_scale + i * groups, x_sum + i * groups, k);
}
