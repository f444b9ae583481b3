// Package draw makes the order of an epoch. [Targets] make of values how often each sample is to be used, and [Order] draws an
// epoch from targets and a seed: the same order bit for bit on every machine. A [Boundary] does both between two epochs. [LowPart]
// and [FillHigh] draw an epoch in two parts. The package has no state: every order is a function of its arguments.
package draw
