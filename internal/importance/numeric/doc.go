// Package numeric has arithmetic that must give the same bits on every machine: random numbers from a seed, an epoch and a use ([Stream]), sorts of
// millions of values ([Ascending], [Greatest]), sums in a fixed order ([Total]) and fractions without overflow ([MulDiv]). It knows nothing about
// methods, orders or memory. Where a comment says so, results are outside Go's heap.
package numeric
