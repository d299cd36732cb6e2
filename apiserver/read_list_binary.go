package apiserver

import (
	"io"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/setpoint-dev/setpoint/apiserver/cbor"
	compiled "github.com/setpoint-dev/setpoint/kinds/schema"
)

// listForm is how protobuf has a list of the objects of the request's kind. The message of a list is
// that of no compiled type: each has its metadata as field 1, and its items as field 2.
func listForm(r *request, media mediaType) (apiVersion, kind string) {
	if media.as != "" {
		return "meta.k8s.io/" + media.version, media.as
	}
	return r.kind.GVK().GroupVersion().String(), r.kind.ListKindName()
}

// itemForm is what the items of a list are.
func itemForm(r *request, media mediaType) *form {
	if media.as != "" {
		media.as = "PartialObjectMetadata"
	}
	return formOf(r, media)
}

// heldBytesMax is how much of a list in protobuf is kept until its size is known, which has to be
// said before it: a list that is larger is encoded twice from there on, so that a list of any length
// costs no more memory than this.
const heldBytesMax = 2 << 20

// writeListProto writes a page as protobuf.
func (s *Server) writeListProto(out *chunks, media mediaType, r *request, p *page) error {
	message, err := compiled.Builtin(metaTypes+"ListMeta").AppendProto(nil, p.metadata(nil))
	if err != nil {
		return err
	}
	message = protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), message)
	items := protoItems{s: s, r: r, page: p, media: media, of: itemForm(r, media)}
	held, size := 0, len(message)
	for i := range p.entries {
		item, err := items.next(i)
		if err != nil {
			return err
		}
		size += len(item)
		if held == i && len(message)+len(item) <= heldBytesMax {
			message = append(message, item...)
			held++
		}
	}
	apiVersion, kind := listForm(r, media)
	out.buf = append(compiled.OpenEnvelope(out.buf, apiVersion, kind, size), message...)
	for i := held; i < len(p.entries); i++ {
		item, err := items.next(i)
		if err != nil {
			return err
		}
		out.buf = append(out.buf, item...)
		if err := out.full(); err != nil {
			return err
		}
	}
	out.buf = compiled.CloseEnvelope(out.buf)
	return out.flush()
}

// protoItems makes the items of a list, one at a time.
type protoItems struct {
	s             *Server
	r             *request
	page          *page
	media         mediaType
	of            *form
	message, item []byte
}

// next returns an object of the page as a field of the list's message. It is good until the next call.
func (p *protoItems) next(i int) ([]byte, error) {
	own, err := p.s.item(p.r, p.page, i)
	if err != nil {
		return nil, err
	}
	if p.media.as != "" {
		own = appendPartial(nil, p.media.version, own)
	}
	if p.message, err = p.of.schema.AppendProto(p.message[:0], own); err != nil {
		return nil, err
	}
	p.item = protowire.AppendTag(p.item[:0], 2, protowire.BytesType)
	p.item = protowire.AppendBytes(p.item, p.message)
	return p.item, nil
}

// cborWriter writes JSON, of which it is given whole tokens, as CBOR.
type cborWriter struct {
	w   io.Writer
	buf []byte
}

func (c *cborWriter) Write(text []byte) (int, error) {
	c.buf = cbor.AppendJSON(c.buf, text)
	_, err := c.w.Write(c.buf)
	c.buf = c.buf[:0]
	return len(text), err
}

func newCBORWriter(w io.Writer) *cborWriter { return &cborWriter{w: w, buf: cbor.Begin(nil)} }
