// exp, tanh and erfc for the vectors of vec.h. Coefficients: scripts/fit_vector_math.py. NaN gives NaN.
// Error bounds are relative, in units of eps = 2^-24; tests/cpp/test_elementwise.py holds the activations to them.
#pragma once

#include "kernels/vec.h"

namespace trtc::kernels {

// c[0] + c[1] x + ... by Horner's rule.
template <class V, int kTerms>
inline typename V::F horner(typename V::F x, const float (&c)[kTerms]) {
  typename V::F y = V::set(c[kTerms - 1]);
  for (int i = kTerms - 2; i >= 0; --i) y = V::fma(y, x, V::set(c[i]));
  return y;
}

// exp(x) = 2^n exp(r), r = x - n ln 2 in two parts (Cody & Waite, Software Manual for the Elementary Functions, 1980).
// Within 3 eps; zero below -87.336, where the result would be subnormal (those cost hundreds of cycles), infinity above
// 88.73.
template <class V>
inline typename V::F exp(typename V::F x) {
  using F = typename V::F;
  static constexpr float kTail[] = {0.5f, 0.166665763f, 0.0416664667f, 0.00836317521f, 0.00139336439f};
  const F smallest = V::set(-87.336f);
  const F bounded = V::min(V::set(89.0f), V::max(smallest, x));
  const F n = V::round(bounded * V::set(1.44269504f));
  F r = V::fnma(n, V::set(0x1.62e4p-1f), bounded);  // ln 2 to 15 bits: the product with n is exact
  r = V::fnma(n, V::set(0x1.7f7d1cp-20f), r);       // the rest of ln 2
  const F poly = V::fma(r * r, horner<V>(r, kTail), r);
  return V::select_less(x, smallest, V::zero(), V::scale_pow2(V::set(1.0f) + poly, n));
}

// Odd polynomial near zero, else 1 - 2 / (exp(2 |x|) + 1). Within 4 eps.
template <class V>
inline typename V::F tanh(typename V::F x) {
  using F = typename V::F;
  static constexpr float kTail[] = {-0.333333284f, 0.133327827f, -0.0538524985f, 0.0210036412f, -0.006104948f};
  const F size = V::abs(x);
  const F z = x * x;
  const F near = V::fma(z * x, horner<V>(z, kTail), x);
  const F far = V::set(1.0f) - V::set(2.0f) / (exp<V>(size + size) + V::set(1.0f));
  return V::select_less(size, V::set(0.625f), near, V::with_sign_of(far, x));
}

// erfc(t) = u exp(-t^2 + P(u)), u = 1 / (1 + t / 2), for t >= 0 (the form of Numerical Recipes' erfcc); 2 - erfc(-t)
// below. Within (6 + 2 t^2) eps.
template <class V>
inline typename V::F erfc(typename V::F t) {
  using F = typename V::F;
  static constexpr float kExponent[] = {-1.26544797f,   0.998632789f,  0.3866404f,  0.0346027985f, 0.00126758742f,
                                        -0.0802804306f, -0.696251869f, 1.15673375f, -0.6808272f,   0.144930214f};
  const F size = V::abs(t);
  const F u = V::set(1.0f) / V::fma(size, V::set(0.5f), V::set(1.0f));
  const F upper = u * exp<V>(V::fnma(size, size, horner<V>(u, kExponent)));
  return V::select_less(t, V::zero(), V::set(2.0f) - upper, upper);
}

}  // namespace trtc::kernels
