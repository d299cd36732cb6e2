package wire_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/setpoint-dev/setpoint/cache/wire"
)

const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"default","resourceVersion":"7",
	"creationTimestamp":"2026-01-02T03:04:05Z","labels":{"app":"w\"{e}\\b"},"managedFields":[{"manager":"m",
	"operation":"Update","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{}}}]},"spec":{"containers":[{"name":"c",
	"image":"i","ports":[{"containerPort":80}],"resources":{"requests":{"cpu":"100m"}},
	"readinessProbe":{"httpGet":{"path":"/","port":"http"}}}],"terminationGracePeriodSeconds":30},"status":{}}`

// texts are decoded as client-go decodes them, whether fast or not, or not at all.
var texts = []string{
	pod,
	`{"apiVersion":"v1","kind":"Pod","spec":{"nodeName":"n"}}`,
	`{"spec":{"nodeName":"n"},"kind":"Pod","apiVersion":"v1"}`,
	` {"kind":"Pod","apiVersion":"v1","spec":{"nodeName":"a","nodeName":"b","noDename":"c"}}`,
	`{"kind":"ConfigMap","apiVersion":"v1","data":null,"binaryData":{"a":"aGk="}}`,
	`{"kind":"ConfigMap","apiVersion":"v1","binaryData":{"a":"not base64"}}`,
	"{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"data\":{\"a\":\"\xff\"}}",
	`{"kind":"Pod","apiVersion":"v1","spec":{"nodeName":7}}`,
	`{"kind":"Pod","apiVersion":"v1","kind":"Node"}`,
	`{"kind":"Po\u0064","apiVersion":"v1"}`,
	`{"kind":"Unheard","apiVersion":"v1"}`,
	`{"kind":"Status","apiVersion":"v1","code":410,"reason":"Expired"}`,
	`{"kind":"Pod","apiVersion":"v1"`,
	`{"kind":"Pod"}`, `[]`, `null`, ``,
	`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a"}}]}`,
}

func decoders(s runtime.NegotiatedSerializer) runtime.Decoder {
	info, _ := runtime.SerializerInfoForMediaType(s.SupportedMediaTypes(), runtime.ContentTypeJSON)
	return s.DecoderToVersion(info.Serializer, nil)
}

var (
	ours   = decoders(wire.Serializer(scheme.Scheme))
	theirs = decoders(serializer.NewCodecFactory(scheme.Scheme).WithoutConversion())
)

func compare(t *testing.T, text string) {
	t.Helper()
	for _, into := range []func() runtime.Object{
		func() runtime.Object { return nil },
		func() runtime.Object { return &corev1.Pod{} },
	} {
		got, gotKind, err := ours.Decode([]byte(text), nil, into())
		want, wantKind, wantErr := theirs.Decode([]byte(text), nil, into())
		if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
			t.Fatalf("%s: %v, client-go says %v", text, err, wantErr)
		}
		if err != nil {
			continue
		}
		if diff := cmp.Diff(want, got) + cmp.Diff(wantKind, gotKind); diff != "" {
			t.Errorf("%s: (-client-go +ours)\n%s", text, diff)
		}
	}
}

func TestDecodesAsClientGo(t *testing.T) {
	for _, text := range texts {
		compare(t, text)
	}
}

func FuzzDecode(f *testing.F) {
	for _, text := range texts {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) { compare(t, text) })
}

// A type that has an any has whole numbers in it, as client-go reads them.
func TestWholeNumbersStayWhole(t *testing.T) {
	gv := schema.GroupVersion{Group: "example.com", Version: "v1"}
	own := runtime.NewScheme()
	own.AddKnownTypeWithName(gv.WithKind("Box"), &box{})
	got, _, err := decoders(wire.Serializer(own)).Decode(
		[]byte(`{"kind":"Box","apiVersion":"example.com/v1","content":{"n":1}}`), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, ok := got.(*box).Content["n"].(int64); !ok || n != 1 {
		t.Errorf("got %#v", got)
	}
}

type box struct {
	metav1.TypeMeta `json:",inline"`
	Content         map[string]any `json:"content"`
}

func (b *box) DeepCopyObject() runtime.Object { return &box{b.TypeMeta, b.Content} }

// Frames are found wherever the text is cut, however large they are, and however they are spaced.
func TestFrames(t *testing.T) {
	want := []string{`{"a":"}\\\"{"}`, `{"b":[{},{"c":"\\"}]}`, `{"d":"` + strings.Repeat("x", 9000) + `"}`, `{}`}
	text := strings.Join(want, "\n") + "\n"
	info, _ := runtime.SerializerInfoForMediaType(wire.Serializer(scheme.Scheme).SupportedMediaTypes(), runtime.ContentTypeJSON)
	for name, cut := range map[string]func(io.Reader) io.Reader{
		"Whole": func(r io.Reader) io.Reader { return r },
		"Bytes": iotest.OneByteReader, "Halves": iotest.HalfReader, "DataErr": iotest.DataErrReader,
	} {
		t.Run(name, func(t *testing.T) {
			got, err := frames(info.StreamSerializer.Framer.NewFrameReader(io.NopCloser(cut(strings.NewReader(text)))))
			if err != io.EOF {
				t.Errorf("ended with %v", err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			_, err = frames(info.StreamSerializer.Framer.NewFrameReader(io.NopCloser(cut(strings.NewReader(text + `{"e"`)))))
			if err != io.ErrUnexpectedEOF {
				t.Errorf("half a frame ended with %v", err)
			}
		})
	}
}

// frames reads to the end, in pieces that are smaller than some frames.
func frames(r io.Reader) (all []string, err error) {
	var frame strings.Builder
	piece := make([]byte, 1000)
	for {
		n, err := r.Read(piece)
		frame.Write(piece[:n])
		if errors.Is(err, io.ErrShortBuffer) {
			continue
		}
		if err != nil {
			return all, err
		}
		all = append(all, strings.TrimSpace(frame.String()))
		frame.Reset()
	}
}

func TestMetadataWatch(t *testing.T) {
	var asked string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.String()
		w.Header().Set("Content-Type", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
		fmt.Fprint(w, `{"type":"ADDED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{
				"name":"a","namespace":"x","uid":"1","resourceVersion":"7","deletionTimestamp":"2026-01-01T00:00:00Z",
				"finalizers":["f"],"ownerReferences":[{"apiVersion":"v1","kind":"K","name":"o","uid":"2","blockOwnerDeletion":true}],
				"labels":{"l":"v"},"managedFields":[{"manager":"m","fieldsV1":{}}]}}}
			{ "object": {"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"b"}}, "type": "DELETED" }
			{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410}}`)
	}))
	defer server.Close()
	client, err := wire.Metadata(&rest.Config{Host: server.URL}, server.Client())
	if err != nil {
		t.Fatal(err)
	}
	seconds := int64(5)
	watch, err := client.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}).
		Namespace("x").Watch(context.Background(), metav1.ListOptions{ResourceVersion: "3", TimeoutSeconds: &seconds})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	var first *metav1.PartialObjectMetadata
	for event := range watch.ResultChan() {
		switch obj := event.Object.(type) {
		case *metav1.PartialObjectMetadata:
			if first == nil {
				first = obj
			}
			got = append(got, string(event.Type)+" "+obj.Name)
		case *metav1.Status:
			got = append(got, fmt.Sprint(event.Type, " ", obj.Code))
		}
	}
	if diff := cmp.Diff([]string{"ADDED a", "DELETED b", "ERROR 410"}, got); diff != "" {
		t.Error(diff)
	}
	wantFirst := &metav1.PartialObjectMetadata{
		ObjectMeta: metav1.ObjectMeta{
			Name: "a", Namespace: "x", UID: "1", ResourceVersion: "7", Finalizers: []string{"f"},
			DeletionTimestamp: ptr.To(metav1.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "K", Name: "o", UID: "2", BlockOwnerDeletion: ptr.To(true)},
			},
		},
	}
	if diff := cmp.Diff(wantFirst, first); diff != "" {
		t.Errorf("what is read of an object (-want +got):\n%s", diff)
	}
	want := "/apis/apps/v1/namespaces/x/deployments?resourceVersion=3&timeout=5s&timeoutSeconds=5&watch=true"
	if asked != want {
		t.Errorf("asked %s, not %s", asked, want)
	}
}
