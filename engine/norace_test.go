//go:build !race

package engine

const slow = false
