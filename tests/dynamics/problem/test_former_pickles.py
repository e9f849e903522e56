"""Values that an earlier version has pickled, under modules that have moved since."""

import pickle

import pytest

#: Pickles by the versions before the modules moved, and what each prints.
PICKLES = {
    b"ccopy_reg\n_reconstructor\np0\n(cdynamics.problem.schedule\nSaveAt\np1\nc__builtin__\nobject\np2\nNtp3\nRp4\n(dp5\n"
    b"Vtimes\np6\ncnumpy._core.multiarray\n_reconstruct\np7\n(cnumpy\nndarray\np8\n(I0\ntp9\nc_codecs\nencode\np10\n(Vb\n"
    b"p11\nVlatin1\np12\ntp13\nRp14\ntp15\nRp16\n(I1\n(I2\ntp17\ncnumpy\ndtype\np18\n(Vf8\np19\nI00\nI01\ntp20\nRp21\n(I3\n"
    b"V<\np22\nNNNI-1\nI-1\nI0\ntp23\nbI00\ng10\n(V\\u0000\\u0000\\u0000\\u0000\\u0000\\u0000\xf0?\\u0000\\u0000\\u0000\\u0000"
    b"\\u0000\\u0000\\u0000@\np24\ng12\ntp25\nRp26\ntp27\nbsb.": "SaveAt(2 times from 1 to 2)",
    b"ccopy_reg\n_reconstructor\np0\n(cdynamics.theory.fits\nPowerLawFit\np1\nc__builtin__\nobject\np2\nNtp3\nRp4\n(lp5\n"
    b"F-1.0\naF0.0\naF1.0\na(F1.0\nF10.0\ntp6\naI10\nab.":
        "PowerLawFit(exponent=-1.0, standard_error=0.0, prefactor=1.0, window=(1.0, 10.0), count=10)",
    b"ccopy_reg\n_reconstructor\np0\n(cdynamics.theory.linear_regression\nRegressionRisk\np1\nc__builtin__\ntuple\np2\n("
    b"F1.0\nNtp24\ntp25\nRp26\n.": "RegressionRisk(risk=1.0, average_risk=None)",
}  # fmt: skip


@pytest.mark.parametrize("stored", PICKLES)
def test_a_pickle_of_an_earlier_version_still_opens(stored):
    with pytest.warns(
        FutureWarning, match=r"is deprecated since version 1\.0 and goes in 2\.0: use `dynamics\."
    ) as caught:
        value = pickle.loads(stored)
    assert repr(value) == PICKLES[stored]
    assert [warning.filename for warning in caught] == [__file__]
    # Pickled again it names the new place.
    assert repr(pickle.loads(pickle.dumps(value))) == PICKLES[stored]
