// Package draw computes the order of an epoch. [Targets] computes from values how often each sample should be used. [Order] draws an epoch from targets
// and a seed, bit for bit the same on every machine. A [Boundary] does both between two epochs. [LowPart] and [FillHigh] draw an epoch in two parts. The
// package has no state: every order is a function of its arguments.
package draw
