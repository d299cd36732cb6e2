package pack_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/setpoint-dev/setpoint/cache/internal/pack"
)

func roundTrip(t *testing.T, p *pack.Packer, text []byte) pack.Text {
	t.Helper()
	packed := p.Pack(text)
	got, err := p.Unpack([]byte("before "), packed)
	if err != nil || !bytes.Equal(got[len("before "):], text) {
		t.Fatalf("%.60q became %.60q, %v", text, got, err)
	}
	return packed
}

// podLike is a text of which little differs from one to the next.
func podLike(i int) []byte {
	return fmt.Appendf(nil, `{"name":"web-%d","uid":"%d-4f5b","env":[%s],"status":{"ip":"10.0.0.%d"}}`,
		i, i*7919, strings.Repeat(`{"name":"SOME_VARIABLE","value":"some value"},`, 30), i%256)
}

func TestTextsThatLookAlikeTakeLittle(t *testing.T) {
	var p pack.Packer
	raw, packed := 0, 0
	for i := range 100 {
		text := podLike(i)
		raw += len(text)
		packed += len(roundTrip(t, &p, text))
	}
	if packed > raw/15 {
		t.Errorf("%d bytes take %d", raw, packed)
	}
}

// A text that was packed early is read after much has been learned.
func TestWhatWasPackedStaysReadable(t *testing.T) {
	var p pack.Packer
	random := rand.New(rand.NewPCG(1, 2))
	var texts [][]byte
	var packed []pack.Text
	for i := range 200 {
		text := make([]byte, random.IntN(20_000))
		for j := range text {
			text[j] = "abcdefgh"[random.IntN(i%8+1)]
		}
		texts, packed = append(texts, text), append(packed, p.Pack(text))
	}
	for i, want := range texts {
		if got, err := p.Unpack(nil, packed[i]); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("text %d of %d bytes: %v", i, len(want), err)
		}
	}
}

func TestLargeTexts(t *testing.T) {
	var p pack.Packer
	half := bytes.Repeat([]byte("0123456789abcdef"), 10_000)
	roundTrip(t, &p, append(half, half...))
	roundTrip(t, &p, podLike(1))
}

func TestConcurrentUse(t *testing.T) {
	var p pack.Packer
	var running sync.WaitGroup
	for g := range 4 {
		running.Go(func() {
			for i := range 200 {
				text := append(podLike(i), byte(g))
				if got, err := p.Unpack(nil, p.Pack(text)); err != nil || !bytes.Equal(got, text) {
					t.Errorf("text %d of %d: %v", i, g, err)
				}
			}
		})
	}
	running.Wait()
}

func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte(`{"a":1}`), []byte(`{"a":2}`))
	f.Add(bytes.Repeat([]byte("x"), 1000), bytes.Repeat([]byte("xy"), 1000))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var p pack.Packer
		roundTrip(t, &p, a)
		roundTrip(t, &p, b)
		roundTrip(t, &p, append(a, b...))
	})
}

// What was not packed is an error, and no more than that: it takes no more memory than it says at its
// beginning. That may be much, of which the fuzzer would run out.
func FuzzUnpack(f *testing.F) {
	const saysMax = 1 << 20
	var p pack.Packer
	f.Add(string(p.Pack(podLike(1))))
	f.Add("\x00\x08\x01a\x07\x01\x00\x00")
	f.Add("\x00\x08\x01a\xff\xff\x7f\x01\x00\x00") // two megabytes, where eight bytes were said
	f.Fuzz(func(t *testing.T, text string) {
		_, base := binary.Uvarint([]byte(text))
		says, _ := binary.Uvarint([]byte(text[max(0, base):]))
		if base <= 0 || says > saysMax {
			t.Skip()
		}
		if got, err := p.Unpack(nil, pack.Text(text)); uint64(len(got)) > says+uint64(len(text)) {
			t.Errorf("%d bytes, where %d were said: %v", len(got), says, err)
		}
	})
}

func BenchmarkPack(b *testing.B) {
	var p pack.Packer
	text := podLike(7)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		p.Pack(text)
	}
}

func BenchmarkUnpack(b *testing.B) {
	var p pack.Packer
	p.Pack(podLike(1))
	text := podLike(7)
	packed, buf := p.Pack(text), make([]byte, 0, 4096)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		buf, _ = p.Unpack(buf[:0], packed)
	}
}
