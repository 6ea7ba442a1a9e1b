"""Tables of labels as people and collections keep them, each written out here as it is published."""

import gzip

import pytest

from bagwise.errors import DataError
from bagwise.media.labels import read_labels

WAVS = ["a.wav", "b.wav", "c.wav"]


@pytest.fixture
def read(tmp_path):
    def reader(text, files=WAVS, name="labels.csv", medium="audio", **options):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_labels(path, files, medium, **options)

    return reader


# ---------------------------------------------------------------------- plain tables


@pytest.mark.parametrize(
    "text",
    [
        "file,labels\na.wav,wren;robin\nb.wav,wren\nc.wav,\n",
        "file;labels\na.wav;wren|robin\nb.wav;wren\nc.wav;\n",
        "filename\tspecies\na.wav\twren;robin\nb.wav\twren\nc.wav\t\n",
        "file,label\na.wav,wren\na.wav,robin\nb.wav,wren\nc.wav,\n",
        "file,label_1,label_2\na.wav,wren,robin\nb.wav,wren,\nc.wav,,\n",
        "file,robin,wren\na.wav,1,1\nb.wav,0,1\nc.wav,0,0\n",
        "file,robin,wren\na.wav,yes,TRUE\nb.wav,no,true\nc.wav,,\n",
        'file,tags\na.wav,"wren, robin"\nb.wav,wren\nc.wav,\n',
        "file,tags\na.wav,\"['wren', 'robin']\"\nb.wav,['wren']\nc.wav,[]\n",
        "a.wav,wren;robin\nb.wav,wren\nc.wav,\n",  # no header
        "what,who\na,wren;robin\nb,wren\nc,\n",  # columns by content
        "\ufefffile,labels\r\na.wav,wren;robin\r\n\r\nb.wav,wren\r\nc.wav,\r\n",
        "Date,File,Species\n2024-01-01,a.wav,wren;robin\n2024-01-02,b.wav,wren\n2024-01-02,c.wav,\n",
    ],
)
def test_plain_tables(read, text):
    found = read(text)
    assert found.bag_labels == {"a.wav": ["robin", "wren"], "b.wav": ["wren"], "c.wav": []}
    assert not found.spans and not found.unknown_files and not found.files_without


def test_what_was_taken_is_said(read):
    found = read("Site,File,Species,month\nx,a.wav,wren;robin,3\n")
    assert found.said == "labels.csv: table, file in 'File', labels in 'Species' separated by ';'; " + (
        "left out: Site, month"
    )
    assert "columns of 0 and 1" in read("file,wren,gull\na.wav,1,0\n").said


def test_words_stay_words(read):
    found = read("file,label\n007,12\nNA.wav,True\n", ["007.wav", "NA.wav"])
    assert found.bag_labels == {"007.wav": ["12"], "NA.wav": ["True"]}


def test_a_binary_column_called_label_names_two_classes(read):
    found = read("case_id,slide_id,label\np1,s1,0\np2,s2,1\n", ["s1.h5", "s2.h5"], medium="embeddings")
    assert found.bag_labels == {"s1.h5": ["0"], "s2.h5": ["1"]}
    found = read("slide_id,tumour\ns1,0\ns2,1\n", ["s1.h5", "s2.h5"], medium="embeddings")
    assert found.bag_labels == {"s1.h5": [], "s2.h5": ["tumour"]}


def test_columns_can_be_named(read):
    text = "rec,who,n\na.wav,wren/robin,1\n"
    found = read(text, file_column="rec", label_columns=["who"], separator="/")
    assert found.bag_labels == {"a.wav": ["robin", "wren"]}
    with pytest.raises(DataError, match="no column 'bird'"):
        read(text, label_columns=["bird"])


def test_places_in_plain_tables(read):
    found = read("file,start,end,low,high,label\na.wav,0:01:05,70,2000,4000,wren\na.wav,,,,,gull\n")
    (span,) = found.spans
    assert (span.start, span.end, span.low, span.high, span.label) == (65, 70, 2000, 4000, "wren")
    assert found.bag_labels == {"a.wav": ["gull", "wren"]}
    found = read("image,xmin,ymin,xmax,ymax,class\np.jpg,1,2,4,6,cat\n", ["p.jpg"], medium="image")
    assert (found.spans[0].x, found.spans[0].y, found.spans[0].width, found.spans[0].height) == (1, 2, 3, 4)
    found = read("file,start_char,end_char,label\nt.txt,3,9,sport\n", ["t.txt"], medium="text")
    assert (found.spans[0].start_char, found.spans[0].end_char) == (3, 9)


def test_gzip_utf16_and_spaces(read, tmp_path):
    text = "file,labels\na.wav, wren \n"
    assert read(gzip.compress(text.encode()), name="x.csv.gz").bag_labels == {"a.wav": ["wren"]}
    assert read(text.encode("utf-16"), name="y.csv").bag_labels == {"a.wav": ["wren"]}


def test_xlsx(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    sheet = book.active
    for row in (
        ["file", "labels", "n"],
        ["a.wav", "wren;robin", 3],
        ["b.wav", None, 4.5],
        ["c.wav", "Ä", True],
    ):
        sheet.append(row)
    book.create_sheet("second").append(["nothing"])
    path = tmp_path / "labels.xlsx"
    book.save(path)
    found = read_labels(path, WAVS, "audio")
    assert found.bag_labels == {"a.wav": ["robin", "wren"], "b.wav": [], "c.wav": ["Ä"]}
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"no readable \.xlsx"):
        read_labels(path, WAVS, "audio")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("file,labels\n,wren\n", "line 2: no file in column 'file'"),
        ("file,start,end,label\na.wav,5,3,wren\n", "line 2: a span ends at 3, before it begins at 5"),
        ("file,start,end,label\na.wav,1,,wren\n", "line 2: a place needs start, end"),
        ("file,start,end,label\na.wav,1,x,wren\n", "line 2: column 'end': expected a number, found 'x'"),
        ('file,start,end,label\na.wav,"1,5",2,wren\n', "line 2: .*decimals with a dot"),
        ("site,date\nx,2024\n", "no column names the files"),
        ("file,date,site\na.wav,2024,x\n", "no column of labels among file, date, site"),
        ("file,labels\nz.wav,wren\n", "none of the 3 files at hand is called so; the first is 'a.wav'"),
        (b"file,labels\na.wav,wren\nb.wav,M\xfcller\n", "line 3: byte 0xfc is not UTF-8"),
        (b"file,labels\n\0\0", "zero bytes"),
    ],
)
def test_mistakes_are_named(read, text, message):
    with pytest.raises(DataError, match=message) as caught:
        read(text)
    assert "labels.csv" in str(caught.value) and "\n" not in str(caught.value)


# ---------------------------------------------------------------------- tables of sound


def spans(found):
    return sorted((s.file, s.label, s.start, s.end) for s in found.spans)


def test_birdclef_clips(read):
    text = (
        "primary_label,secondary_labels,type,latitude,longitude,scientific_name,common_name,author,license,"
        "rating,url,filename\n"
        "asbfly,\"['gretit1', '22961']\",['call'],1,2,M d,Asian Brown,me,cc,5,u,asbfly/XC1.ogg\n"
        "22961,[''],\"['song']\",1,2,M d,Frog,me,cc,0,u,22961/XC2.ogg\n"
    )
    found = read(text, ["asbfly/XC1.ogg", "22961/XC2.ogg"], name="train_metadata.csv")
    assert found.bag_labels == {"asbfly/XC1.ogg": ["22961", "asbfly", "gretit1"], "22961/XC2.ogg": ["22961"]}
    assert found.said == "train_metadata.csv: BirdCLEF clips"


def test_birdclef_soundscapes(read):
    text = (
        "filename,start,end,primary_label\n"
        + 2 * "a.wav,00:00:00,00:00:05,x;y\n"
        + "b.wav,00:00:05,00:00:10,\n"
    )
    found = read(text)
    assert spans(found) == [("a.wav", "x", 0, 5), ("a.wav", "y", 0, 5)]
    assert found.bag_labels == {"a.wav": ["x", "y"], "b.wav": []}
    old = "row_id,site,audio_id,seconds,birds\n7019_COR_5,COR,7019,5,nocall\n"
    old += "7019_COR_10,COR,7019,10,rucwar ruff\n"
    found = read(old, ["7019_COR.ogg"])
    assert spans(found) == [("7019_COR.ogg", "rucwar", 5, 10), ("7019_COR.ogg", "ruff", 5, 10)]


def test_xeno_canto(read):
    text = 'id,gen,sp,en,also,file-name\n12,Turdus,merula,Blackbird,"Parus major, Sylvia",XC12-a.mp3\n'
    found = read(text, ["XC12-a.mp3"])
    assert found.bag_labels == {"XC12-a.mp3": ["Parus major", "Sylvia", "Turdus merula"]}
    answer = '{"recordings": [{"id": "12", "gen": "Turdus", "sp": "merula", "also": ["Parus major"]}]}'
    assert read(answer, ["XC12.mp3"], name="xc.json").bag_labels == {
        "XC12.mp3": ["Parus major", "Turdus merula"]
    }


def test_dcase(read):
    weak = "filename\tevent_labels\na.wav\tSpeech,Dog\nb.wav\t\n"
    assert read(weak, name="weak.tsv").bag_labels == {"a.wav": ["Dog", "Speech"], "b.wav": []}
    strong = "event_label\tonset\toffset\tfilename\nDog\t0.5\t1.25\ta.wav\n\t\t\tb.wav\n"
    found = read(strong, name="strong.tsv")
    assert spans(found) == [("a.wav", "Dog", 0.5, 1.25)]
    assert found.bag_labels == {"a.wav": ["Dog"], "b.wav": []} and found.files_without == ["c.wav"]


def test_fsd50k_and_audioset(read):
    text = 'fname,labels,mids,split\n64760,"Electric_guitar,Guitar",/m/1,train\n'
    assert read(text, ["64760.wav"]).bag_labels == {"64760.wav": ["Electric_guitar", "Guitar"]}
    text = "segment_id\tstart_time_seconds\tend_time_seconds\tlabel\na\t0.5\t2\t/m/04rlf\n"
    assert spans(read(text, name="s.tsv")) == [("a.wav", "/m/04rlf", 0.5, 2)]


@pytest.mark.parametrize(
    "text",
    [
        "Start (s),End (s),Scientific name,Common name,Confidence,File\n0,3,T t,Wren,0.9,/me/a.wav\n"
        "3.0,6.0,E r,Robin,0.5,/me/a.wav\n",
        "Start (s),End (s),Scientific name,Common name,Confidence,File\n0,3,T t,Wren,0.9,/me,too/a.wav\n"
        "3.0,6.0,E r,Robin,0.5,/me,too/a.wav\n",
        "filepath,start,end,scientific_name,common_name,confidence,lat\n/me/a.wav,0,3,T t,Wren,0.9,-1\n"
        "/me/a.wav,3,6,E r,Robin,0.9,-1\n",
        "INDIR,FOLDER,IN FILE,OFFSET,DURATION,scientific_name,common_name,confidence\n"
        "/me,x,a.wav,0,3,T,Wren,.9\n"
        "/me,x,a.wav,3,3,E,Robin,.9\n",
        "idx,project,filename,window_start,window_end,label,logits\n0,p,a.wav,0,5,Wren,1.5\n1,p,a.wav,5,10,Robin,2\n",
        "filename, timestamp_s, label, logit\na.wav, 0.0, Wren, 1.5\na.wav, 5.0, Robin, 1.5\n",
    ],
)
def test_detections_of_programs_are_weak_labels(read, text):
    found = read(text)
    assert found.bag_labels == {"a.wav": ["Robin", "Wren"]}
    assert not found.spans and "as labels of whole files" in found.said


def test_detections_below_a_score_are_left_out(read):
    text = "Start (s),End (s),Scientific name,Common name,Confidence,File\n0,3,T t,Wren,0.9,a.wav\n"
    text += "3.0,6.0,E r,Robin,0.5,a.wav\n0,3,E r,Robin,0.2,b.wav\n"
    found = read(text, min_score=0.6)
    assert found.bag_labels == {"a.wav": ["Wren"], "b.wav": []} and "2 labels" in found.said


def test_annotations_around_perch(read):
    found = read("filename,start_time_s,end_time_s,label\na.wav,0,5,wren gull\nb.wav,0,5,unknown\n")
    assert spans(found) == [("a.wav", "gull", 0, 5), ("a.wav", "wren", 0, 5)]
    found = read(
        "recording,label,start_offset_s,end_offset_s,label_type\na.wav,wren,0,5,positive\na.wav,gull,0,5,negative\n"
    )
    assert spans(found) == [("a.wav", "wren", 0, 5)] and found.bag_labels == {"a.wav": ["wren"]}
    text = (
        "Filename,Start Time (s),End Time (s),Low Freq (Hz),High Freq (Hz),Species eBird Code\n"
        "a.wav,1,2,3000,5000,apapan\na.wav,2,3,3000,5000,????\n"
    )
    found = read(text)
    assert spans(found) == [("a.wav", "apapan", 1, 2)] and found.spans[0].low == 3000


# ---------------------------------------------------------------------- tables that hold the texts themselves


def test_a_table_of_texts_holds_its_labels(read):
    rows = ["articles.csv#1", "articles.csv#2"]
    long = "word " * 50_000  # a cell may be a book
    text = f'text,topics\n"{long}",sport;news\nShort.,\n'
    found = read(text, rows, name="articles.csv", medium="text")
    assert found.bag_labels == {"articles.csv#1": ["news", "sport"], "articles.csv#2": []}
    assert "table of the texts themselves" in found.said
    text = "document,id,label\nSome words.,x7,sport\nMore words.,x8,news\n"
    found = read(text, ["articles.csv#x7", "articles.csv#x8"], name="articles.csv", medium="text")
    assert found.bag_labels == {"articles.csv#x7": ["sport"], "articles.csv#x8": ["news"]}
    lines = '{"text": "One.", "label": ["a"]}\n\n{"text": "Two.", "label": [[0, 3, "b"]]}\n'
    found = read(lines, ["d.jsonl#1", "d.jsonl#2"], name="d.jsonl", medium="text")
    assert found.bag_labels == {"d.jsonl#1": ["a"], "d.jsonl#2": ["b"]} and found.spans[0].end_char == 3
