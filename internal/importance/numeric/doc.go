// Package numeric has the arithmetic of importance that must give the same bits on every machine: random numbers by seed, epoch
// and use ([Stream]), sorts of millions of values ([Ascending], [Greatest]), sums in a fixed order ([Total]) and fractions without
// overflow ([MulDiv]). It knows nothing of methods, orders or memory. What it returns lies outside Go's heap where its text says so.
package numeric
