"""With fractions, and ties told apart by comparing twice the rest with one."""


def encode(x, exponent, fraction):
    from fractions import Fraction

    sign = 1 if copysign(1.0, x) < 0 else 0
    top = (1 << exponent) - 1
    if isnan(x) or isinf(x):
        return (sign << exponent | top) << fraction | isnan(x)
    bias, left = (1 << (exponent - 1)) - 1, abs(Fraction(x))
    power = 1 - bias
    if left:  # the lengths of two numbers tell their quotient's power, or one more
        power = max(power, left.numerator.bit_length() - left.denominator.bit_length() - 1)
    if left >= Fraction(2) ** (power + 1):
        power += 1
    units = left / Fraction(2) ** (power - fraction)
    whole = units.numerator // units.denominator
    rest = 2 * (units - whole)
    whole += rest > 1 or (rest == 1 and whole & 1)
    bits = whole + ((power - 1 + bias) << fraction)
    return sign << (exponent + fraction) | min(bits, top << fraction)
